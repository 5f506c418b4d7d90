import numpy as np
from numpy.testing import assert_array_equal

from cfe_faiss.store.growing import appended, objects


def test_what_is_appended_is_behind_the_rest() -> None:
    array = np.arange(3)
    versions = [array]
    for i in range(200):
        versions.append(appended(versions[-1], np.arange(i % 4)))
    expected = np.arange(3)
    for i, version in enumerate(versions[1:]):
        expected = np.concatenate([expected, np.arange(i % 4)])
        assert_array_equal(version, expected)
    assert_array_equal(versions[0], np.arange(3))
    for i, version in enumerate(versions[1:]):  # also those before are as they were
        assert len(version) == len(versions[i]) + i % 4
        assert_array_equal(version[: len(versions[i])], versions[i])


def test_few_copies_are_made() -> None:
    array, rooms = np.empty(0, np.int64), set()
    for i in range(10_000):
        array = appended(array, np.array([i]))
        rooms.add(array.ctypes.data)
    assert_array_equal(array, np.arange(10_000))
    assert len(rooms) < 40


def test_views_of_other_arrays_are_not_written_over() -> None:
    whole = np.arange(10)
    for part in (whole[2:5], whole[::-1][:3], whole[::2][:3]):
        kept = part.copy()
        assert_array_equal(appended(part, np.array([7])), [*kept, 7])
    assert_array_equal(whole, np.arange(10))


def test_objects_stay_what_they_are() -> None:
    found = objects([[1, 2], [3, 4]])
    assert (found.shape, found[0]) == ((2,), [1, 2])
    assert objects([]).shape == (0,)
