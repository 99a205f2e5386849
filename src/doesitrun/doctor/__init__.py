"""Is an environment fit to run models, and what is to be done if not? Facts are gathered, then judged, apart."""
