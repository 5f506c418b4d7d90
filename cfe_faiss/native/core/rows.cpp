#include "core/rows.h"

#include <stdexcept>
#include <string>

namespace cfe {

namespace {

void require(bool holds, const std::string& message) {
  if (!holds) throw std::invalid_argument(message);
}

std::size_t row_size(Codec codec, std::size_t d) {
  switch (codec) {
    case Codec::kFlat:
      return 4 * d;
    case Codec::kFp16:
      return 2 * d;
    case Codec::kSq8:
      return d;
  }
  throw std::invalid_argument("codec must be 0, 1 or 2");
}

}  // namespace

Rows::Rows(std::size_t d, Codec codec, std::span<const float> levels, std::span<const std::int64_t> starts,
           std::span<const std::uint64_t> code_addresses, std::span<const std::uint64_t> id_addresses,
           std::span<const std::int32_t> labels)
    : d_(d),
      row_size_(cfe::row_size(codec, d)),
      codec_(codec),
      levels_(levels.begin(), levels.end()),
      starts_(starts.begin(), starts.end()),
      labels_(labels.begin(), labels.end()) {
  const auto n = static_cast<std::int64_t>(labels.size());
  require(d > 0, "d must be at least 1");
  require(levels.size() == (codec == Codec::kSq8 ? 2 * d : 0),
          "levels must hold 2 * d numbers for 8-bit codes, else 0");
  require(!starts.empty() && starts.front() == 0 && starts.back() == n,
          "starts must run from 0 to the number of labels");
  require(std::is_sorted(starts.begin(), starts.end()), "starts must ascend");
  require(code_addresses.size() == nlist() && id_addresses.size() == nlist(), "each list must have codes and ids");
  for (std::size_t list = 0; list < nlist(); ++list) {
    const bool filled = starts[list] < starts[list + 1];
    require(!filled || (code_addresses[list] != 0 && id_addresses[list] != 0), "a list with rows must have memory");
    const auto own = labels.subspan(starts[list], starts[list + 1] - starts[list]);
    require(std::is_sorted(own.begin(), own.end()), "labels must ascend in each list");
    require(own.empty() || own.front() >= kUnknown, "labels must be at least -1");
    codes_.push_back(reinterpret_cast<const std::uint8_t*>(code_addresses[list]));
    ids_.push_back(reinterpret_cast<const std::int64_t*>(id_addresses[list]));
  }
}

}  // namespace cfe
