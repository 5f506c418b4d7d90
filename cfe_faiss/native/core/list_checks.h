// Checksums of the lists in a mapped file. A list is compared with its own when somebody reads it for the first time.
#pragma once

#include <atomic>

#include "core/common.h"

namespace cfe {

// The CRC-32 of zlib, of some bytes that follow those whose CRC-32 is `before`.
std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t before = 0);

// Several threads may check at the same time.
class ListChecks {
 public:
  // `sums`: of each list, the checksum of its codes and that of its ids; none where the file has none, so that no list
  // is ever refused. `source` is what errors call the file.
  ListChecks(std::string source, std::span<const std::uint32_t> sums);

  // Throws std::invalid_argument if the codes of a list, in one or two parts, or its ids do not match their checksum.
  void check_codes(std::size_t list, std::span<const std::uint8_t> codes, std::span<const std::uint8_t> more) const;
  void check_ids(std::size_t list, std::span<const std::uint8_t> ids) const;

 private:
  bool is_checked(std::size_t place) const { return place >= sums_.size() || checked_[place].load(); }
  void compare(std::size_t place, std::uint32_t sum) const;

  std::string source_;
  std::vector<std::uint32_t> sums_;
  std::unique_ptr<std::atomic<bool>[]> checked_;
};

}  // namespace cfe
