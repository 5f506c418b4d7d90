// All kernels, for one instruction set; compiled once for each (see CMakeLists.txt).
#include "core/kernels.h"

#include "kernels/block_pack.h"
#include "kernels/block_scan.h"
#include "kernels/similarity.h"

namespace cfe {

#define CFE_JOINED(name, level) name##_##level
#define CFE_TABLE(level) CFE_JOINED(kernels, level)

const Kernels& CFE_TABLE(CFE_LEVEL)() {
  static constexpr Kernels table{
      .has_bytes = CFE_LEVEL::kHasBytes,
      .pack_list = CFE_LEVEL::block::pack_list,
      .scan_group = CFE_LEVEL::block::scan_group,
      .pair_similarities = CFE_LEVEL::pair_similarities,
  };
  return table;
}

}  // namespace cfe
