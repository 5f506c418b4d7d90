import os

import numpy as np
import pytest

from cfe_faiss.base.disk import release, scratch


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_released_maps_keep_their_values(mode, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5000))
    mapped = np.load(tmp_path / "a.npy", mmap_mode=mode)
    expected = np.arange(5000)
    if mode != "r":
        mapped[7] = expected[7] = -1
    view = np.asarray(mapped)[3:].reshape(-1, 1)
    release(mapped, view, mapped[5:], None, [1], np.ones(3))
    np.testing.assert_array_equal(mapped, expected)
    np.testing.assert_array_equal(view[:, 0], expected[3:])


def test_scratch_matrices_are_files_for_a_while(tmp_path):
    with scratch(tmp_path, (30, 4), 2) as (one, other):
        one[:] = 1
        other[:] = 2
        release(one, other)
        assert (one == 1).all()
        assert (other == 2).all()
        assert sorted(path.stat().st_size for path in tmp_path.glob("*/*")) == [480, 480]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    not hasattr(os, "posix_fallocate"), reason="this system reserves no room for files"
)
def test_a_full_disk_is_an_error_before_anything_is_written(tmp_path):
    with pytest.raises(OSError, match=r"."), scratch(tmp_path, (1 << 40, 1 << 15), 1):
        pass
    assert list(tmp_path.iterdir()) == []
