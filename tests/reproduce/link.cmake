set(link tessera_planners)
