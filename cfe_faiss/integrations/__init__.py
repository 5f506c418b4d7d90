"""Evidence search in the vector stores of others: LangChain, LlamaIndex, Haystack. Each is loaded when it is imported."""
