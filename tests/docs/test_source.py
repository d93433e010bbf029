# SPDX-License-Identifier: Apache-2.0
"""Rules of the source that no compiler checks."""
import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src"

# The format puts a function's return type and name at the start of a line and its "{" alone on a later one.
FUNCTION = re.compile(r"^(?![#}/ ])[\w][\w *]*?\b(\w+)\((?:[^;{}()]|\([^;{}()]*\))*\)(?:\s*/\*[^\n]*\*/)?\n\{", re.M)


def functions():
    """Every function that is defined, with the files that define it."""
    found = {}
    for path in sorted(SOURCES.rglob("*.[ch]")):
        for name in FUNCTION.findall(path.read_text()):
            found.setdefault(name, []).append(str(path.relative_to(SOURCES)))
    return found


def test_every_function_has_a_name_of_its_own():
    """Static ones too: in a stack trace a name must lead to one place."""
    found = functions()
    assert len(found) > 3000, "the pattern no longer finds the functions"
    found.pop("main")  # of two programs
    twins = {name: files for name, files in found.items() if len(files) > 1}
    assert not twins, twins


def test_no_description_hides_another():
    """A name that a catalogue has twice keeps the last text only."""
    tree = ast.parse((ROOT / "tests/docs/catalogue.py").read_text())
    for table in (node for node in ast.walk(tree) if isinstance(node, ast.Dict)):
        names = [key.value for key in table.keys if isinstance(key, ast.Constant)]
        assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def test_asserts_are_dense_enough():
    """At least 15 in 1000 lines, blank ones and comments included: an invariant that only a comment states will be broken."""
    sources = [path.read_text() for path in sorted(SOURCES.rglob("*.[ch]"))]
    lines = sum(text.count("\n") for text in sources)
    asserts = sum(len(re.findall(r"(?<![\w])assert\(", text)) for text in sources)
    assert lines > 50_000, "the sources are elsewhere"
    assert 1000 * asserts / lines >= 15, f"{asserts} asserts in {lines} lines"


def test_every_mutant_fits_the_sources():
    """And every acceptance line of the seeds and guarantee of the README has one (tests/mutants/lines.py)."""
    checked = subprocess.run([sys.executable, ROOT / "tests/mutants/run.py", "--check"], capture_output=True, text=True,
                             check=False)
    assert checked.returncode == 0, checked.stderr
