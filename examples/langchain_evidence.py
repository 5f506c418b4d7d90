"""The most similar tickets that a classifier labels differently, in LangChain. Needs cfe-faiss[integrations]."""

import tempfile
from pathlib import Path

from langchain_community.docstore.in_memory import InMemoryDocstore
from langchain_community.vectorstores import FAISS
from langchain_community.vectorstores.utils import DistanceStrategy
from langchain_core.embeddings import Embeddings
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


class TextEmbeddings(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return vectorizer.transform(texts).toarray().tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


texts, embeddings = ROUTINE + URGENT, TextEmbeddings()
classifier = LogisticRegression(C=10).fit(embeddings.embed_documents(texts), [0] * len(ROUTINE) + [1] * len(URGENT))

options = {"distance_strategy": DistanceStrategy.MAX_INNER_PRODUCT}
store = FAISS(embeddings, cfe.IndexEvidenceFlat(256), InMemoryDocstore(), {}, **options)
store.add_texts(texts)  # LangChain adds vectors without their classes,
store.index.relabel(classifier.predict(embeddings.embed_documents(texts)))  # so they are told afterwards

for ticket in ["My card was charged twice for one order", "How do I change my address after the update"]:
    label = int(classifier.predict([embeddings.embed_query(ticket)])[0])
    contrast = FAISS(embeddings, store.index.excluding(label), store.docstore, store.index_to_docstore_id, **options)
    print(f"{NAMES[label]}: {ticket}")
    for document, similarity in contrast.similarity_search_with_score(ticket, k=2):
        print(f"  but {NAMES[1 - label]}, similarity {similarity:.2f}: {document.page_content}")

with tempfile.TemporaryDirectory() as folder:
    store.save_local(folder)
    cfe.write_index(store.index, Path(folder) / "index.faiss")  # the same file, with the labels behind it
    loaded = FAISS.load_local(folder, embeddings, allow_dangerous_deserialization=True)
    loaded.index = cfe.read_index(Path(folder) / "index.faiss")  # LangChain itself reads a stock index
    print("after loading:", loaded.index)
