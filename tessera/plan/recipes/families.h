// The recipes of each family of strategies, in the order of `tessera plan --list`. A family is one
// source file of this folder.
#pragma once

#include <vector>

#include "tessera/plan/recipes/writer.h"

namespace tessera::recipes {

std::vector<Recipe> data_parallel_recipes();
std::vector<Recipe> tensor_parallel_recipes();
std::vector<Recipe> pipeline_recipes();
std::vector<Recipe> megatron_recipes();
std::vector<Recipe> summa_recipes();  // Cannon and 2.5-D too
std::vector<Recipe> tensor_parallel_3d_recipes();
std::vector<Recipe> per_layer_recipes();
std::vector<Recipe> per_op_recipes();
std::vector<Recipe> recompute_recipes();
std::vector<Recipe> offload_recipes();
std::vector<Recipe> expert_recipes();
std::vector<Recipe> loop_recipes();
std::vector<Recipe> sequence_parallel_recipes();
std::vector<Recipe> axial_recipes();
std::vector<Recipe> spatial_recipes();  // maps by channels too
std::vector<Recipe> split_brain_recipes();
std::vector<Recipe> table_recipes();
std::vector<Recipe> compression_recipes();

}  // namespace tessera::recipes
