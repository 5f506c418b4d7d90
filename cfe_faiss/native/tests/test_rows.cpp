#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/rows.h"
#include "tests/check.h"

namespace cfe {

namespace {

// Three lists of vectors of two numbers, the second one empty; a test changes one thing and makes Rows of the rest.
struct Lists {
  std::size_t d = 2;
  Codec codec = Codec::kFlat;
  std::vector<float> levels;
  std::vector<std::int64_t> starts{0, 3, 3, 5};
  std::vector<float> first{1, 2, 3, 4, 5, 6}, third{7, 8, 9, 10};
  std::vector<std::int64_t> first_ids{30, 10, 20}, third_ids{50, 40};
  std::vector<std::int32_t> labels{-1, 0, 0, 1, 1};
  std::vector<const std::uint8_t*> codes{bytes_of(first), nullptr, bytes_of(third)};
  std::vector<const std::int64_t*> ids{first_ids.data(), nullptr, third_ids.data()};

  static const std::uint8_t* bytes_of(const std::vector<float>& values) {
    return reinterpret_cast<const std::uint8_t*>(values.data());
  }
  Rows rows() const {
    return {{d, codec, levels}, {.starts = starts, .codes = codes, .ids = ids, .labels = labels, .pq_codes = {}}};
  }
};

}  // namespace

TEST(rows_know_their_lists_ids_and_labels) {
  const Lists lists;
  const Rows rows = lists.rows();
  CHECK(rows.d() == 2 && rows.size() == 5 && rows.nlist() == 3 && rows.row_size() == 8);
  const std::size_t list_of[] = {0, 0, 0, 2, 2};
  const std::int64_t ids[] = {30, 10, 20, 50, 40};
  for (std::int64_t row = 0; row < 5; ++row) {
    CHECK(rows.list_of(row) == list_of[row]);
    CHECK(rows.ids_of(list_of[row])[row - rows.starts()[list_of[row]]] == ids[row]);
    const auto* vectors = reinterpret_cast<const float*>(rows.codes_of(list_of[row]));
    CHECK(vectors[2 * (row - rows.starts()[list_of[row]])] == static_cast<float>(2 * row + 1));
  }
  CHECK(rows.labels_of(0).size() == 3 && rows.labels_of(1).empty() && rows.labels_of(2)[0] == 1);
  CHECK(rows.ids_of(1).empty() && rows.ids_of(2)[1] == 40);
}

TEST(rows_may_be_none) {
  const Rows rows({3, Codec::kFp16, {}}, {.starts = {0}, .codes = {}, .ids = {}, .labels = {}, .pq_codes = {}});
  CHECK(rows.size() == 0 && rows.nlist() == 0 && rows.row_size() == 6);
}

TEST(rows_refuse_what_does_not_fit) {
  const auto refused = [](const char* text, auto change) {
    Lists lists;
    change(lists);
    CHECK_THROWS(std::invalid_argument, text, lists.rows().check_labels());
  };
  refused("d must be", [](Lists& lists) { lists.d = 0; });
  refused("levels must hold", [](Lists& lists) { lists.levels = {1.0F}; });
  refused("levels must hold", [](Lists& lists) { lists.codec = Codec::kSq8; });
  refused("must have memory", [](Lists& lists) { lists.codes[0] = nullptr; });
  refused("must have memory", [](Lists& lists) { lists.ids[2] = nullptr; });
  refused("labels must ascend", [](Lists& lists) { lists.labels = {0, -1, 0, 1, 1}; });
  refused("at least -1", [](Lists& lists) { lists.labels[0] = -2; });
}

}  // namespace cfe
