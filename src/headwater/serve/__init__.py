"""HTTP: views, live feeds, ingest, alerts and the page."""
