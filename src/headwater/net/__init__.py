"""The asyncio shell: listeners and connections around the codecs, the state machines and the log."""
