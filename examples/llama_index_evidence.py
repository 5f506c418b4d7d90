"""
Evidence in LlamaIndex
======================

The most similar tickets that a classifier labels differently, from a LlamaIndex vector store and in a query engine.
Needs the extra ``llama-index``, and no network: the embedding counts pieces of words, and the language model is a mock.
"""

# sphinx_gallery_thumbnail_path = "_static/thumb_llama_index.svg"

import tempfile

from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

import cfe_faiss as cfe
from cfe_faiss.integrations.llama_index import EvidenceRetriever, EvidenceVectorStore

# %%
# Tickets, an embedding and a classifier of texts. In your application all three are there already.

ROUTINE = [
    "My card was charged, please send me the receipt",
    "Please change the address of my account",
    "The app shows the wrong address after the update",
    "How do I change the card of my account",
]
URGENT = [
    "My card was charged twice, please refund one payment",
    "Somebody else changed the address of my account",
    "I cannot log in to my account since the update",
    "The app crashes after the update and my order is lost",
]
vectorizer = HashingVectorizer(
    n_features=256, analyzer="char_wb", ngram_range=(2, 4), alternate_sign=False
)


class TextEmbedding(BaseEmbedding):
    def _get_text_embedding(self, text):
        return vectorizer.transform([text]).toarray()[0].tolist()

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


embedding = TextEmbedding()
model = LogisticRegression(C=10).fit(
    vectorizer.transform(ROUTINE + URGENT), ["routine"] * len(ROUTINE) + ["urgent"] * len(URGENT)
)


def classify(text):
    return str(model.predict(vectorizer.transform([text]))[0])


# %%
# Documents go into an index with the classes that are predicted for them. LlamaIndex embeds metadata along with the
# text, if it is not told otherwise: the class is left out, so that similarity means similar texts.

store = EvidenceVectorStore(cfe.EvidenceStore(256))
documents = [Document(text=text, metadata={"label": classify(text)}) for text in ROUTINE + URGENT]
for document in documents:
    document.excluded_embed_metadata_keys.append("label")
storage = StorageContext.from_defaults(vector_store=store)
VectorStoreIndex.from_documents(documents, storage_context=storage, embed_model=embedding)

# %%
# A retriever of evidence takes a text, asks the classifier for its class, and returns the most similar nodes of another
# class.

retriever = EvidenceRetriever(store, classify, embedding, similarity_top_k=2)
for ticket in [
    "My card was charged twice for one order",
    "How do I change my address after the update",
]:
    print(f"{classify(ticket)}: {ticket}")
    for found in retriever.retrieve(ticket):
        print(
            f"  but {found.node.metadata['label']}, similarity {found.score:.2f}: {found.node.get_content()}"
        )

# %%
# In a query engine the evidence is what the language model answers from. This one repeats what it is asked.

engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
answer = engine.query("My card was charged twice for one order")
told = [source.node.get_content() for source in answer.source_nodes]
print("the language model was told the evidence:", all(text in str(answer) for text in told))

# %%
# Nodes that are stored are asked for by their ids; filters are LlamaIndex's, and exact. Files keep the classes, too.

urgent = MetadataFilters(filters=[MetadataFilter(key="label", value="urgent")])
receipt = next(node for node in store.get_nodes() if "receipt" in node.get_content())
with tempfile.TemporaryDirectory() as folder:
    store.persist(f"{folder}/tickets")
    loaded = EvidenceVectorStore.from_persist_path(f"{folder}/tickets")
for found in loaded.evidence(receipt.node_id, k=1, filters=urgent):
    print(
        f"{receipt.get_content()}\n  but {found.node.metadata['label']}: {found.node.get_content()}"
    )
