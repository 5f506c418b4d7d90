"""Evidence search in other vector stores, each loaded on import.

There is one for LangChain, LlamaIndex and Haystack.
"""
