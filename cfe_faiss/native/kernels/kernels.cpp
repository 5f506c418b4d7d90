// All kernels, for one instruction set; compiled once for each (see CMakeLists.txt).
#include "core/kernels.h"

#include "kernels/normalise.h"
#include "kernels/propagation.h"
#include "kernels/similarity.h"

namespace cfe {

#define CFE_JOINED(name, level) name##_##level
#define CFE_TABLE(level) CFE_JOINED(kernels, level)

const Kernels& CFE_TABLE(CFE_LEVEL)() {
  static constexpr Kernels table{
      .pair_similarities = CFE_LEVEL::pair_similarities,
      .first_not_finite = CFE_LEVEL::first_not_finite,
      .unit_rows = CFE_LEVEL::unit_rows,
      .normalise = CFE_LEVEL::normalise,
      .step = CFE_LEVEL::step,
      .gather = CFE_LEVEL::gather,
      .finish = CFE_LEVEL::finish,
  };
  return table;
}

}  // namespace cfe
