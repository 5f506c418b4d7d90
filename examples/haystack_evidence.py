"""
Evidence in Haystack
====================

The most similar tickets that a classifier labels differently, from a Haystack document store and in a pipeline. Needs
the extra ``haystack``, and no network: the embedder counts pieces of words.
"""

# sphinx_gallery_thumbnail_path = "_static/thumb_haystack.svg"

import tempfile

from haystack import Document, Pipeline, component
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

from cfe_faiss.integrations.haystack import (
    EvidenceDocumentStore,
    EvidenceEmbeddingRetriever,
    EvidenceRetriever,
)

# %%
# Tickets, an embedder and a classifier as components. In your application all three are there already.

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
model = LogisticRegression(C=10).fit(
    vectorizer.transform(ROUTINE + URGENT), ["routine"] * len(ROUTINE) + ["urgent"] * len(URGENT)
)


@component
class TextEmbedder:
    @component.output_types(embedding=list[float])
    def run(self, text: str):
        return {"embedding": vectorizer.transform([text]).toarray()[0].tolist()}


@component
class TextClassifier:
    @component.output_types(label=str)
    def run(self, text: str):
        return {"label": str(model.predict(vectorizer.transform([text]))[0])}


embedder, classifier = TextEmbedder(), TextClassifier()

# %%
# Documents are written with their embeddings, and with the classes that are predicted for them in their ``meta``.

store = EvidenceDocumentStore(embedding_dim=256)
store.write_documents(
    [
        Document(id=f"ticket-{i}", content=text, meta=classifier.run(text), **embedder.run(text))
        for i, text in enumerate(ROUTINE + URGENT)
    ]
)

# %%
# One retriever finds similar documents, the other one takes the class of the query as well and finds similar documents
# of another class.

pipeline = Pipeline()
pipeline.add_component("embedder", embedder)
pipeline.add_component("classifier", classifier)
pipeline.add_component("similar", EvidenceEmbeddingRetriever(store, top_k=1))
pipeline.add_component("evidence", EvidenceRetriever(store, top_k=2))
pipeline.connect("embedder.embedding", "similar.query_embedding")
pipeline.connect("embedder.embedding", "evidence.query_embedding")
pipeline.connect("classifier.label", "evidence.label")

for ticket in [
    "My card was charged twice for one order",
    "How do I change my address after the update",
]:
    result = pipeline.run(
        {"embedder": {"text": ticket}, "classifier": {"text": ticket}},
        include_outputs_from={"classifier"},
    )
    print(f"{result['classifier']['label']}: {ticket}")
    print(f"  most similar: {result['similar']['documents'][0].content}")
    for document in result["evidence"]["documents"]:
        print(
            f"  but {document.meta['label']}, similarity {document.score:.2f}: {document.content}"
        )

# %%
# Documents that are stored are asked for by their ids; filters are Haystack's, and exact. Files keep the classes, too.

about_cards = {
    "field": "content",
    "operator": "in",
    "value": [text for text in ROUTINE if "card" in text],
}
with tempfile.TemporaryDirectory() as folder:
    store.save_to_disk(f"{folder}/tickets")
    loaded = EvidenceDocumentStore(embedding_dim=256, path=f"{folder}/tickets")
for document in loaded.evidence("ticket-4", filters=about_cards, top_k=1):
    print(f"{URGENT[0]}\n  but {document.meta['label']}: {document.content}")
