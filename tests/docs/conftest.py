# SPDX-License-Identifier: Apache-2.0
"""Settings of the caller's environment are not the tests'."""
import os

for name in [name for name in os.environ if name.startswith(("LAPSE_", "RELAY_"))]:
    del os.environ[name]
