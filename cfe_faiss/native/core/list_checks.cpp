#include "core/list_checks.h"

#include <array>
#include <cstring>

namespace cfe {

namespace {

constexpr std::size_t kAtOnce = 16;  // bytes
using Tables = std::array<std::array<std::uint32_t, 256>, kAtOnce>;

// tables[i][b]: effect of byte b on the checksum if i bytes follow it.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ (0xEDB88320u & (0u - (sum & 1u)));
    tables[0][byte] = sum;
  }
  for (std::size_t i = 1; i < kAtOnce; ++i)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t sum = tables[i - 1][byte];
      tables[i][byte] = (sum >> 8) ^ tables[0][sum & 255];
    }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t before) {
  std::uint32_t sum = ~before;
  std::size_t place = 0;
  for (; place + kAtOnce <= bytes.size(); place += kAtOnce) {
    std::uint8_t own[kAtOnce];
    std::memcpy(own, bytes.data() + place, kAtOnce);
    for (std::size_t i = 0; i < 4; ++i) own[i] ^= static_cast<std::uint8_t>(sum >> (8 * i));
    sum = 0;
    for (std::size_t i = 0; i < kAtOnce; ++i) sum ^= kTables[kAtOnce - 1 - i][own[i]];
  }
  for (; place < bytes.size(); ++place) sum = (sum >> 8) ^ kTables[0][(sum ^ bytes[place]) & 255];
  return ~sum;
}

ListChecks::ListChecks(std::string source, std::span<const std::uint32_t> sums)
    : source_(std::move(source)),
      sums_(sums.begin(), sums.end()),
      checked_(std::make_unique<std::atomic<bool>[]>(sums.size())) {}

void ListChecks::check_codes(std::size_t list, std::span<const std::uint8_t> codes,
                             std::span<const std::uint8_t> more) const {
  if (!is_checked(2 * list)) compare(2 * list, crc32(more, crc32(codes)));
}

void ListChecks::check_ids(std::size_t list, std::span<const std::uint8_t> ids) const {
  if (!is_checked(2 * list + 1)) compare(2 * list + 1, crc32(ids));
}

void ListChecks::compare(std::size_t place, std::uint32_t sum) const {
  if (sum != sums_[place])
    throw std::invalid_argument(source_ + " is damaged: the checksum of its list " + std::to_string(place / 2) +
                                " does not match");
  checked_[place].store(true);
}

}  // namespace cfe
