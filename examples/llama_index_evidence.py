"""The most similar tickets that a classifier labels differently, in LlamaIndex. Needs cfe-faiss[integrations]."""

import tempfile

from llama_index.core import StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import TextNode
from llama_index.vector_stores.faiss import FaissVectorStore
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

import cfe_faiss as cfe

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
NAMES = ["routine", "urgent"]
vectorizer = HashingVectorizer(n_features=256, analyzer="char_wb", ngram_range=(2, 4), alternate_sign=False)


class TextEmbedding(BaseEmbedding):
    def _get_text_embedding(self, text):
        return vectorizer.transform([text]).toarray()[0].tolist()

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


texts, embedding = ROUTINE + URGENT, TextEmbedding()
classifier = LogisticRegression(C=10).fit(vectorizer.transform(texts), [0] * len(ROUTINE) + [1] * len(URGENT))

evidence = cfe.IndexEvidenceFlat(256)
storage = StorageContext.from_defaults(vector_store=FaissVectorStore(evidence))
VectorStoreIndex([TextNode(text=text) for text in texts], storage_context=storage, embed_model=embedding)
evidence.relabel(classifier.predict(vectorizer.transform(texts)))  # LlamaIndex adds vectors without their classes

with tempfile.TemporaryDirectory() as folder:
    storage.persist(folder)
    cfe.write_index(evidence, f"{folder}/default__vector_store.json")  # the same file, with the labels behind it
    evidence = cfe.read_index(f"{folder}/default__vector_store.json")  # LlamaIndex itself reads a stock index
    for ticket in ["My card was charged twice for one order", "How do I change my address after the update"]:
        label = int(classifier.predict(vectorizer.transform([ticket]))[0])
        view = FaissVectorStore(evidence.excluding(label))
        contrast = StorageContext.from_defaults(vector_store=view, persist_dir=folder)
        retriever = load_index_from_storage(contrast, embed_model=embedding).as_retriever(similarity_top_k=2)
        print(f"{NAMES[label]}: {ticket}")
        for found in retriever.retrieve(ticket):
            print(f"  but {NAMES[1 - label]}, similarity {found.score:.2f}: {found.node.get_content()}")
