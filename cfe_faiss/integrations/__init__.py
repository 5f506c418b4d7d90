"""Evidence search in other vector stores, each loaded on import.

They are those of LangChain, LlamaIndex and Haystack.
"""
