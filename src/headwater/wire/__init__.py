"""Sans-IO protocol codecs: bytes in, messages out, and back."""
