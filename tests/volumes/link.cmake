# Compiled one by one: headers that a neighbour in a batch includes would shadow b, s and h of models_and_tensors.h.
set_source_files_properties(${files} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
