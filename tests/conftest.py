import os

# Idle OpenMP threads should sleep, not spin: the tests search tiny indexes thousands of times on shared machines.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Haystack reports its use to its makers, unless it is told not to before it is imported.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines keep no deadline. Examples are the same in every run. `make slow` runs more of them.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=60)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Return the folder of the real graphs, or skip: they are not part of the repository."""
    root = Path(os.environ.get("CFE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (root / "nifty").is_dir():
        pytest.skip(f"the real graphs are not at {root}: set CFE_DATA to the folder that holds them")
    return root
