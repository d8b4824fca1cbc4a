"""What can be done with a study on disk? It can be shown, resumed, merged and exported."""
