set(link tessera_search)
