"""Runs inside the image, one per node: MaxText's own trainer, given our resolved arguments.

python -m primus.backends.maxtext.worker FILE
"""

from __future__ import annotations

import functools
import os
import sys
from importlib import resources
from pathlib import Path

from primus.experiment.substitute import fill
from primus.experiment.yaml import read, untyped


def main() -> None:
    arguments = fill(untyped(read(Path(sys.argv[1]), layer="resolved")), os.environ)

    # The wheel looks for its tokenizers where the source tree has them.
    os.environ.setdefault("MAXTEXT_ASSETS_ROOT", str(resources.files("maxtext") / "assets"))

    from absl import app
    from maxtext.configs import pyconfig
    from maxtext.trainers.pre_train import train

    # Keyword arguments are the only layer that beats MaxText's own model files in every case.
    pyconfig.initialize = functools.partial(pyconfig.initialize, **arguments)
    base = resources.files("maxtext") / "configs" / "base.yml"
    app.run(train.main, argv=[sys.argv[0], str(base)])  # absl's run is what turns its logging on


if __name__ == "__main__":
    main()
