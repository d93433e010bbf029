# SPDX-License-Identifier: Apache-2.0
"""What the tests import, found also when they run together with another suite, whose pytest.ini is in force then."""
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "double")]
