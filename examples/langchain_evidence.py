"""
Evidence in LangChain
=====================

The most similar tickets that a classifier labels differently, from a LangChain vector store. Needs the extra
``langchain``, and no network: the embedding counts pieces of words.
"""

# sphinx_gallery_thumbnail_path = "_static/thumb_langchain.svg"

import tempfile

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

from cfe_faiss.integrations.langchain import EvidenceVectorStore

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


class TextEmbeddings(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return vectorizer.transform(texts).toarray().tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


model = LogisticRegression(C=10).fit(
    vectorizer.transform(ROUTINE + URGENT), ["routine"] * len(ROUTINE) + ["urgent"] * len(URGENT)
)


def classify(text: str) -> str:
    return str(model.predict(vectorizer.transform([text]))[0])


# %%
# Documents go into the store with the classes that are predicted for them. A retriever of evidence then takes a text,
# asks the classifier for its class, and returns the most similar documents of another one.

documents = [Document(text, metadata={"label": classify(text)}) for text in ROUTINE + URGENT]
store = EvidenceVectorStore.from_documents(
    documents, TextEmbeddings(), ids=[f"ticket-{i}" for i in range(8)]
)
retriever = store.as_retriever(search_type="evidence", classifier=classify, search_kwargs={"k": 2})
for ticket in [
    "My card was charged twice for one order",
    "How do I change my address after the update",
]:
    print(f"{classify(ticket)}: {ticket}")
    for document in retriever.invoke(ticket):
        print(f"  but {document.metadata['label']}: {document.page_content}")

# %%
# Documents that are stored are asked for by their ids, here with similarities. Any metadata can filter.

for document, similarity in store.evidence_search_with_score("ticket-4", k=2):
    print(f"{similarity:.2f} {document.metadata['label']}: {document.page_content}")

# %%
# When the classifier is trained anew, only classes change: vectors and texts stay. Files keep the classes, too.

store.relabel({"ticket-0": "urgent"})
with tempfile.TemporaryDirectory() as folder:
    store.save_local(folder)
    loaded = EvidenceVectorStore.load_local(folder, TextEmbeddings())
print("after loading:", loaded.evidence_search("ticket-4", k=1)[0].page_content)
