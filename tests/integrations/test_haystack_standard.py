"""Haystack's own tests of document stores, all that Haystack 3 has, for ours."""

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("haystack", reason='needs pip install "cfe-faiss[haystack]"')

from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.testing import document_store as standard
from haystack.testing import document_store_async as standard_async

from cfe_faiss.integrations.haystack import EvidenceDocumentStore


class Tested:
    """What Haystack's tests ask of a store's own tests: the store, equality, and what the policy NONE means."""

    @pytest.fixture
    def document_store(self) -> EvidenceDocumentStore:
        return EvidenceDocumentStore(embedding_dim=768)

    @staticmethod
    def assert_documents_are_equal(received: list[Document], expected: list[Document]) -> None:
        """Compare all fields, embeddings as float32: of the 53 bits of a random number the store keeps 24."""
        found = [replace(one, embedding=None) for one in received]
        assert found == [replace(one, embedding=None) for one in expected]
        for one, other in zip(received, expected, strict=True):
            assert (one.embedding is None) == (other.embedding is None)
            if one.embedding is not None:
                np.testing.assert_allclose(one.embedding, other.embedding, rtol=3e-7, atol=0)


class TestDocumentStore(
    Tested,
    standard.DocumentStoreBaseExtendedTests,
    standard.CountDocumentsByFilterTest,
    standard.CountUniqueMetadataByFilterTest,
    standard.GetMetadataFieldsInfoTest,
    standard.GetMetadataFieldMinMaxTest,
    standard.GetMetadataFieldUniqueValuesTest,
):
    def test_write_documents(self, document_store: EvidenceDocumentStore) -> None:
        documents = [Document(id="1", content="one"), Document(id="2", content="two")]
        assert document_store.write_documents(documents) == 2
        with pytest.raises(DuplicateDocumentError, match="ID '2' already exists"):
            document_store.write_documents([Document(id="3"), Document(id="2", content="other")])
        assert document_store.filter_documents() == documents


class TestDocumentStoreAsync(
    Tested,
    standard_async.CountDocumentsAsyncTest,
    standard_async.CountDocumentsByFilterAsyncTest,
    standard_async.CountUniqueMetadataByFilterAsyncTest,
    standard_async.DeleteAllAsyncTest,
    standard_async.DeleteByFilterAsyncTest,
    standard_async.DeleteDocumentsAsyncTest,
    standard_async.FilterDocumentsAsyncTest,
    standard_async.GetMetadataFieldMinMaxAsyncTest,
    standard_async.GetMetadataFieldUniqueValuesAsyncTest,
    standard_async.GetMetadataFieldsInfoAsyncTest,
    standard_async.UpdateByFilterAsyncTest,
    standard_async.WriteDocumentsAsyncTest,
):
    @pytest.mark.asyncio
    async def test_write_documents_async(self, document_store: EvidenceDocumentStore) -> None:
        documents = [Document(id="1", content="one"), Document(id="2", content="two")]
        assert await document_store.write_documents_async(documents) == 2
        with pytest.raises(DuplicateDocumentError, match="ID '2' already exists"):
            await document_store.write_documents_async([Document(id="2", content="other")])
        assert await document_store.filter_documents_async() == documents


@pytest.mark.parametrize(
    ("module", "ours"), [(standard, TestDocumentStore), (standard_async, TestDocumentStoreAsync)]
)
def test_no_class_of_tests_is_left_out(module: ModuleType, ours: type) -> None:
    theirs = {one for name, one in vars(module).items() if name.endswith(("Test", "Tests"))}
    assert len(theirs) > 10
    assert theirs <= set(ours.__mro__)
