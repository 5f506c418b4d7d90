"""faiss.contrib on evidence indexes: batches that do not fit, and a server of one's own."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from faiss.contrib import client_server, rpc
from faiss.contrib.big_batch_search import big_batch_search
from numpy.testing import assert_array_equal
from reference import clustered, unit

import cfe_faiss as cfe
from cfe_faiss.index.ivf_base import EvidenceIVFMixin

N, D, NLIST = 600, 16, 12
RAW, LABELS = clustered(N, D, 3)
X = unit(RAW)


def filled(kind: str, rows: slice = slice(None)) -> EvidenceIVFMixin:
    index: Any = cfe.index_factory(D, kind)
    index.train(X)
    index.add_with_labels(X[rows], LABELS[rows], np.arange(N)[rows])
    index.nprobe = 3
    return index


# Of codes of residuals FAISS's function is right for L2 only: the query's product with the centroid is left out.
@pytest.mark.parametrize("kind", ["EvidenceIVF12,Flat", "EvidenceIVF12,SQ8"])
@pytest.mark.parametrize("method", ["knn_function", "pairwise_distances", "index"])
def test_big_batch_search_of_the_index_as_faiss_sees_it(
    kind: str, method: str, tmp_path: Path
) -> None:
    index = filled(kind)
    expected = index.search(X[:50], 4)
    seen = faiss.downcast_index(index)  # the same index, not a copy, with FAISS's own class
    D_found, I_found = big_batch_search(seen, X[:50], 4, method=method)
    np.testing.assert_allclose(D_found, expected[0], atol=1e-5)
    assert (I_found == expected[1]).mean() > 0.99
    if method == "knn_function":
        D_found, I_found = big_batch_search(
            seen, X[:50], 4, threaded=2, checkpoint=str(tmp_path / "checkpoint")
        )
        np.testing.assert_allclose(D_found, expected[0], atol=1e-5)
    index.relabel(np.roll(LABELS, 1))  # one and the same
    np.testing.assert_allclose(big_batch_search(seen, X[:50], 4)[0], expected[0], atol=1e-5)


def test_big_batch_search_takes_exactly_faiss_s_classes() -> None:
    with pytest.raises(RuntimeError, match="not supported"):
        big_batch_search(filled("EvidenceIVF12,Flat"), X[:50], 4)


SERVER = """
import sys
from faiss.contrib import client_server, rpc
import cfe_faiss as cfe

# NumPy 2 calls one of its modules by another name, which FAISS's protocol does not know yet.
rpc.safe_modules.add("numpy._core.multiarray")
client_server.run_index_server(cfe.read_index(sys.argv[1]), int(sys.argv[2]))
"""


def free_ports() -> list[int]:
    """Two ports: the second is asked for while the first is taken, so that they differ."""
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return [one.getsockname()[1], two.getsockname()[1]]


def connected(
    ports: list[int], servers: list[subprocess.Popen[bytes]]
) -> client_server.ClientIndex:
    for port in ports:
        while True:
            assert all(server.poll() is None for server in servers)
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
    return client_server.ClientIndex([("127.0.0.1", port) for port in ports])


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[client_server.ClientIndex]:
    """Two servers in processes of their own, with half of the vectors each."""
    monkeypatch.setattr(rpc, "safe_modules", rpc.safe_modules | {"numpy._core.multiarray"})
    ports, servers = free_ports(), []
    try:
        for port, rows in zip(ports, (slice(None, N // 2), slice(N // 2, None)), strict=True):
            cfe.write_index(filled("EvidenceIVF12,Flat", rows), tmp_path / f"{port}.index")
            command = [sys.executable, "-c", SERVER, str(tmp_path / f"{port}.index"), str(port)]
            servers.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        client = connected(ports, servers)
        yield client
        client.pool.close()
        client.pool.join()
        for one in client.sub_indexes:
            one.sock.close()
    finally:
        for server in servers:
            server.kill()
            server.wait()


def test_servers_of_their_own_answer_evidence(client: client_server.ClientIndex) -> None:
    assert client.get_ntotal() == N
    client.set_nprobe(2 * NLIST)
    whole = filled("EvidenceIVF12,Flat")
    for found, expected in (
        (
            [one.search(X[:40], 5) for one in client.sub_indexes],
            whole.search(X[:40], 5, params=all_lists()),
        ),
        (
            [one.search_evidence(X[:40], LABELS[:40], 5) for one in client.sub_indexes],
            whole.search_evidence(X[:40], LABELS[:40], 5, exact=True),
        ),
    ):
        D_all, I_all = (np.stack(arrays) for arrays in zip(*found, strict=True))
        D_best, I_best = faiss.merge_knn_results(D_all, I_all, keep_max=True)
        assert_array_equal(I_best, expected[1])
        np.testing.assert_allclose(D_best, expected[0], atol=1e-6)
    one = client.sub_indexes[1]
    one.relabel(np.zeros(N // 2, int))
    assert (one.search_stored(None, 3)[1] == -1).all()
    with pytest.raises(rpc.ServerException, match="ids must be in the index, got 5, which is not"):
        one.search_stored(np.array([5]), 3)
    assert client.get_ntotal() == N  # and goes on


def all_lists() -> Any:
    return faiss.SearchParametersIVF(nprobe=NLIST)


def test_the_server_of_faiss_takes_inverted_files_only() -> None:
    index = cfe.IndexEvidenceIDMap2(D)
    with socket.socket() as one, pytest.raises(RuntimeError, match="extract_index_ivf"):
        client_server.SearchServer(one, index)
