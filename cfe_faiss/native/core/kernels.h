// The table of kernels of one instruction set, and which of them is in use.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/block_view.h"

namespace cfe {

struct Kernels {
  bool has_bytes;  // whether blocks may hold bytes
  void (*pack_list)(const BlocksView& blocks, const ListRows& rows, const ListTarget& target, const PackMemory& memory);
  void (*scan_group)(const BlocksView& blocks, const GroupView& group, const SearchMemory& memory);
  void (*pair_similarities)(const float* X, const float* Y, std::size_t d, std::span<float> result);
};

// The kernels of the level that was chosen when the module was imported.
const Kernels& kernels();

// The level in use: "generic", "avx2", "avx512" or "neon".
const std::string& level();

// The levels that this machine can run, from the plainest to the best.
std::vector<std::string> available_levels();

// Chooses the best level, or the one that the environment variable CFE_SIMD names. Throws std::runtime_error if that is
// none of `available_levels`.
void choose_level();

}  // namespace cfe
