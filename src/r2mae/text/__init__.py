"""Text: masked language models, and a token store."""

from typing import TYPE_CHECKING

from r2mae.lazy import lazy_exports

if TYPE_CHECKING:
    from r2mae.text.batches import TextData, TokenBatches, TokenStore, load_data, open_store
    from r2mae.text.checkpoint import save_pretrained
    from r2mae.text.config import TextConfig
    from r2mae.text.documents import read_documents
    from r2mae.text.domain import DOMAIN
    from r2mae.text.evaluate import embed_documents
    from r2mae.text.tokenizer import TextTokenizer, load_tokenizer, train_bpe

__all__ = [
    "DOMAIN",
    "TextConfig",
    "TextData",
    "TextTokenizer",
    "TokenBatches",
    "TokenStore",
    "embed_documents",
    "load_data",
    "load_tokenizer",
    "open_store",
    "read_documents",
    "save_pretrained",
    "train_bpe",
]

__getattr__, __dir__ = lazy_exports(__name__, __all__)
