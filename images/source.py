"""Lay out a pinned source tree and apply our patches to it.  Any failure says which patch, file and hunk.

usage: source.py --source DIR --output DIR [--commit SHA [--tree SHA | --checkout]] [--patches DIR]

--source is a git directory, with or without a work tree, or a plain tree.  With --commit the tree must be that
commit's: --tree is what `git rev-parse COMMIT^{tree}` prints for it, and tells it even of a plain tree; without, only a
git directory will do.  With --checkout the source is to be used as it lies there: its work tree and all its submodules
must be what the commit says, with nothing changed and nothing added.  The output has no submodules.
--patches holds NNNN-what.patch files of `git format-patch`, all for this tree.  Needs git 2.25 or newer, no network.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Everything that a user's own git configuration or a tree's attributes would change about a file's bytes is off.
ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "HOME": os.devnull,
    "GIT_OPTIONAL_LOCKS": "0",  # a source may be mounted read-only
    **{f"GIT_{who}_{what}": "primus" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}
ATTRIBUTES = "* -text -eol -filter -ident -working-tree-encoding\n"
# What git says of a patch to a file that is not there, or is there and should not be, or should vanish and is another.
WHOLE = "No such file or directory|already exists in .*|does not exist in .*|patch does not apply"
NO_GIT = "has no .git, so that nothing says which commit it is"
CHECK_OUT = "hint: there, git checkout COMMIT && git submodule update --init --recursive"
CLEAN = "hint: git status --ignored, there and in its submodules, says what to remove or to take back"
NAME = re.compile(r"\d{4}-[A-Za-z0-9._+-]+\.patch")


class SourceError(Exception):
    """The source is not the pinned one, or a patch does not fit it."""


@dataclass(frozen=True, kw_only=True)
class Hunk:
    """One hunk of a patch: the file it changes, and its number there, from 1 (0: the file as a whole)."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}, hunk {self.number}" if self.number else f"{self.file}, the whole file"


def git(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run git on a tree, with nothing of the user's settings; the caller looks at the exit code."""
    return subprocess.run(
        ["git", "-c", "safe.directory=*", "-c", "core.autocrlf=false", "-C", str(tree), *words],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )


def done(process: subprocess.CompletedProcess[str]) -> str:
    """What git printed, or its own words as an error."""
    if process.returncode:
        raise SourceError((process.stderr or process.stdout).strip())
    return process.stdout.strip()


def lay_out(source: Path, output: Path, commit: str, tree: str) -> None:
    """A git repository at `output` that holds the source as its one commit, checked against `tree` if that is given."""
    if not source.is_dir() or not any(source.iterdir()):
        raise SourceError(
            f"{source}: {'is empty' if source.is_dir() else 'no such directory'}\n"
            "hint: a submodule that was not initialised is empty: git submodule update --init"
        )
    output.mkdir(parents=True)
    done(git(output, "init", "--quiet"))
    (output / ".git/info").mkdir(exist_ok=True)
    (output / ".git/info/attributes").write_text(ATTRIBUTES, encoding="utf-8")
    objects = next((path for path in (source / "objects", source / ".git/objects") if path.is_dir()), None)
    if commit and objects and (objects.parent / "HEAD").exists():
        (output / ".git/objects/info/alternates").write_text(f"{objects.resolve()}\n", encoding="utf-8")
        if git(output, "cat-file", "-e", f"{commit}^{{commit}}").returncode:
            raise SourceError(f"{source}: has no commit {commit}\nhint: git -C {source} fetch origin {commit}")
        done(git(output, "read-tree", "--reset", "-u", commit))
    elif commit and not tree:
        raise SourceError(f"{source}: {NO_GIT}\nhint: name a git directory")
    else:
        shutil.copytree(source, output, symlinks=True, ignore=shutil.ignore_patterns(".git"), dirs_exist_ok=True)
        done(git(output, "add", "--all", "--force"))
    seen = done(git(output, "write-tree"))
    if tree and seen != tree:
        raise SourceError(
            f"{source}: is not commit {commit}: its files hash to git tree {seen}, not {tree}\n"
            "hint: a work tree must have that commit checked out, with nothing changed and nothing added"
        )
    done(git(output, "commit", "--quiet", "--no-verify", "--allow-empty", "--message", commit or "as released"))


def check(checkout: Path, commit: str, *, top: bool = True) -> None:
    """The work tree and all its submodules are what the commit says, with nothing changed and nothing added."""
    if not (checkout / ".git").exists():  # else git would look above
        hint = "name a checkout, which git clone --recurse-submodules makes" if top else CHECK_OUT[6:]
        raise SourceError(f"{checkout}: {NO_GIT if top else 'is a submodule that was not initialised'}\nhint: {hint}")
    seen = done(git(checkout, "rev-parse", "HEAD"))
    if seen != commit:
        raise SourceError(f"{checkout}: is at {seen}, not {commit}\n{CHECK_OUT}")
    status = git(checkout, "status", "--porcelain", "--ignore-submodules=all", "--untracked-files=all", "--ignored")
    done(status)
    if status.stdout:
        files = ", ".join(line[3:] for line in status.stdout.splitlines()[:5])
        raise SourceError(f"{checkout}: differs from {commit}: {files}\n{CLEAN}")
    for entry in done(git(checkout, "ls-files", "--stage", "-z")).split("\0"):
        about, _, path = entry.partition("\t")
        if about.startswith("160000 "):
            check(checkout / path, about.split()[1], top=False)


def apply(patch: Path, tree: Path) -> str:
    """Commit the patch to the tree; its subject."""
    applied = git(tree, "-c", "core.hooksPath=/dev/null", "am", "--quiet", "--keep-cr", str(patch.resolve()))
    if applied.returncode == 0:
        return done(git(tree, "log", "-1", "--format=%s"))
    git(tree, "am", "--abort")
    wrong, unlike = hunks(patch, tree), hunks(patch, tree, reverse=True)
    if not wrong:  # not a patch at all, or not one of git format-patch
        raise SourceError(f"{patch.name}: {(applied.stderr or applied.stdout).strip()}")
    if not unlike:
        raise SourceError(f"{patch.name}: the source has this change already: upstream took it\nhint: remove the patch")
    verdicts = []
    for hunk in wrong:
        differs = hunk in unlike or (hunk.number == 0 and any(hunk.file == other.file for other in unlike))
        verdicts.append(f"\n  {hunk}: {'does not fit' if differs else 'is there already'}")
    raise SourceError(f"{patch.name}: does not apply{''.join(verdicts)}\nhint: write it anew against this source")


def hunks(patch: Path, tree: Path, *, reverse: bool = False) -> list[Hunk]:
    """The hunks of the patch (or of its reverse) that do not fit the tree, which is left as it was."""
    direction = ["--reverse"] if reverse else []
    said = git(tree, "apply", "--reject", "--verbose", *direction, str(patch.resolve())).stderr
    done(git(tree, "reset", "--hard", "--quiet"))
    done(git(tree, "clean", "--quiet", "--force", "-dx"))
    found, file = [], ""
    for line in said.splitlines():
        if match := re.match(r"(?:Checking|Applying) patch (?:.* => )?(.*?)(?:\.\.\.| with \d+ rejects?\.\.\.)$", line):
            file = match[1]
        elif match := re.fullmatch(r"Rejected hunk #(\d+)\.", line):
            found.append(Hunk(file=file, number=int(match[1])))
        elif match := re.fullmatch(rf"error: (.*): (?:{WHOLE})", line):
            found.append(Hunk(file=match[1], number=0))
    return found


def patches(folder: Path | None) -> list[Path]:
    """The patches in their order; a file of another name is an error, for it would be left out in silence."""
    found = sorted(folder.iterdir()) if folder else []
    for path in found:
        if not NAME.fullmatch(path.name):
            raise SourceError(f"{path}: is not named NNNN-what.patch")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--commit", default="")
    parser.add_argument("--tree", default="")
    parser.add_argument("--checkout", action="store_true")
    parser.add_argument("--patches", type=Path)
    options = parser.parse_args()
    try:
        if options.checkout:
            check(options.source, options.commit)
        lay_out(options.source, options.output, options.commit, options.tree)
        for patch in patches(options.patches):
            print(f"applied {patch.name}: {apply(patch, options.output)}", flush=True)
    except SourceError as error:
        shutil.rmtree(options.output, ignore_errors=True)
        print(f"error: {error}", file=sys.stderr)
        return 1
    shutil.rmtree(options.output / ".git")
    return 0


if __name__ == "__main__":
    sys.exit(main())
