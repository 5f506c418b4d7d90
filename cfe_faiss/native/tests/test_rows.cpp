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
  std::vector<std::uint64_t> codes{address(first), 0, address(third)};
  std::vector<std::uint64_t> ids{address(first_ids), 0, address(third_ids)};

  template <class Number>
  static std::uint64_t address(const std::vector<Number>& values) {
    return reinterpret_cast<std::uint64_t>(values.data());
  }
  Rows rows() const { return Rows({d, codec, levels}, {starts, codes, ids, {}}, labels); }
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
    CHECK(*reinterpret_cast<const float*>(rows.row(row)) == static_cast<float>(2 * row + 1));
  }
  CHECK(rows.labels_of(0).size() == 3 && rows.labels_of(1).empty() && rows.labels_of(2)[0] == 1);
  CHECK(rows.ids_of(1).empty() && rows.ids_of(2)[1] == 40);
}

TEST(rows_may_be_none) {
  const std::vector<std::int32_t> no_labels;
  const Rows rows({3, Codec::kFp16, {}}, {std::vector<std::int64_t>{0}, {}, {}, {}}, no_labels);
  CHECK(rows.size() == 0 && rows.nlist() == 0 && rows.row_size() == 6);
}

TEST(rows_refuse_what_does_not_fit) {
  const auto refused = [](const char* text, auto change) {
    Lists lists;
    change(lists);
    CHECK_THROWS(std::invalid_argument, text, lists.rows());
  };
  refused("d must be", [](Lists& lists) { lists.d = 0; });
  refused("codec must be", [](Lists& lists) { lists.codec = static_cast<Codec>(3); });
  refused("levels must hold", [](Lists& lists) { lists.levels = {1.0F}; });
  refused("levels must hold", [](Lists& lists) { lists.codec = Codec::kSq8; });
  refused("starts must run", [](Lists& lists) { lists.starts = {}; });
  refused("starts must run", [](Lists& lists) { lists.starts.back() = 6; });
  refused("starts must run", [](Lists& lists) { lists.starts.front() = 1; });
  refused("starts must ascend", [](Lists& lists) { lists.starts = {0, 3, 2, 5}; });
  refused("codes and ids", [](Lists& lists) { lists.codes.pop_back(); });
  refused("codes and ids", [](Lists& lists) { lists.ids.push_back(0); });
  refused("must have memory", [](Lists& lists) { lists.codes[0] = 0; });
  refused("must have memory", [](Lists& lists) { lists.ids[2] = 0; });
  refused("labels must ascend", [](Lists& lists) { lists.labels = {0, -1, 0, 1, 1}; });
  refused("at least -1", [](Lists& lists) { lists.labels[0] = -2; });
}

}  // namespace cfe
