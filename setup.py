"""What pyproject.toml cannot say: the examples, which lie beside the package, are installed inside of it."""

from pathlib import Path
from shutil import copytree, ignore_patterns

from setuptools import setup
from setuptools.command.build_py import build_py


class WithExamples(build_py):
    """primus/examples/ of a wheel is examples/ of the checkout, without the demo, which needs one."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            inside = Path(self.build_lib) / "primus" / "examples"
            copytree("examples", inside, dirs_exist_ok=True, ignore=ignore_patterns("demo.py", "__pycache__"))
            (inside / "primus.yaml").touch()  # the root of what its files may extend


setup(cmdclass={"build_py": WithExamples})
