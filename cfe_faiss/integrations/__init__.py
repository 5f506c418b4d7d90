"""Evidence search in the vector stores of others, each loaded when it is imported: LangChain, LlamaIndex, Haystack."""
