// Functions that return the recipes of each family of strategies. A family is one source file of
// this folder.
#pragma once

#include <vector>

#include "tessera/plan/recipes/writer.h"

namespace tessera::recipes {

std::vector<Recipe> data_parallel_recipes();
std::vector<Recipe> tensor_parallel_recipes();
std::vector<Recipe> pipeline_recipes();
std::vector<Recipe> megatron_recipes();
std::vector<Recipe> summa_recipes();  // also Cannon and 2.5-D
std::vector<Recipe> tensor_parallel_3d_recipes();
std::vector<Recipe> per_layer_recipes();
std::vector<Recipe> per_op_recipes();
std::vector<Recipe> recompute_recipes();
std::vector<Recipe> offload_recipes();
std::vector<Recipe> expert_recipes();
std::vector<Recipe> loop_recipes();
std::vector<Recipe> sequence_parallel_recipes();
std::vector<Recipe> axial_recipes();
std::vector<Recipe> spatial_recipes();  // also maps cut by channels
std::vector<Recipe> split_brain_recipes();
std::vector<Recipe> table_recipes();
std::vector<Recipe> compression_recipes();

}  // namespace tessera::recipes
