// Changes of an index: against a plain list of rows, with failing allocations, and with concurrent readers.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/changes.h"
#include "core/read_write_lock.h"
#include "tests/allocation.h"
#include "tests/check.h"

namespace cfe {

namespace {

constexpr std::int64_t kGreatestId = std::numeric_limits<std::int64_t>::max() - 1;
constexpr std::size_t kCodeSize = 3, kD = 2;

struct Shape {
  std::size_t nlist, further, d;
};

struct Row {
  std::int64_t id;
  std::int32_t label;
  bool operator==(const Row&) const = default;
};

// All parts of a row follow from its id, so that mixed rows are noticed.
std::vector<std::byte> code_of(std::int64_t id) {
  return {static_cast<std::byte>(id), static_cast<std::byte>(id >> 8), static_cast<std::byte>(7 * id)};
}
float number_of(std::int64_t id, std::size_t i) { return static_cast<float>(id % 1009) + static_cast<float>(i) / 4; }
std::int32_t home_of(std::int64_t id, std::size_t partition, std::size_t nlist) {
  return static_cast<std::int32_t>(static_cast<std::uint64_t>(id) / (partition + 2) % nlist);
}

// FAISS's lists.
class StoredLists : public InvertedLists {
 public:
  explicit StoredLists(std::size_t nlist) : codes_(nlist), ids_(nlist) {}
  std::size_t size(std::size_t list) const override { return ids_[list].size(); }
  std::byte* codes(std::size_t list) const override { return const_cast<std::byte*>(codes_[list].data()); }
  std::byte* ids(std::size_t list) const override {
    return reinterpret_cast<std::byte*>(const_cast<std::int64_t*>(ids_[list].data()));
  }
  // Like FAISS's, a list that becomes shorter stays where it is.
  void resize(std::size_t list, std::size_t size) {
    const bool longer = size > ids_[list].size();
    codes_[list].resize(size * kCodeSize);
    ids_[list].resize(size);
    if (!longer) return;
    codes_[list].shrink_to_fit();  // so that to write behind the rows is seen
    ids_[list].shrink_to_fit();
  }

 private:
  std::vector<std::vector<std::byte>> codes_;
  std::vector<std::vector<std::int64_t>> ids_;
};

// New rows and their arrays.
struct NewSample {
  std::vector<Row> rows;
  std::vector<std::byte> codes;
  std::vector<std::int64_t> ids;
  std::vector<std::int32_t> homes, lists, labels;
  std::vector<float> vectors;

  NewSample(const Shape& shape, std::vector<Row> own, const std::vector<std::int32_t>& own_lists)
      : rows(std::move(own)), lists(own_lists) {
    for (const auto& [id, label] : rows) {
      const auto code = code_of(id);
      codes.insert(codes.end(), code.begin(), code.end());
      ids.push_back(id);
      labels.push_back(label);
      for (std::size_t p = 0; p < shape.further; ++p) homes.push_back(home_of(id, p, shape.nlist));
      for (std::size_t i = 0; i < shape.d; ++i) vectors.push_back(number_of(id, i));
    }
  }
  NewRows fresh() const {
    return {codes.data(), reinterpret_cast<const std::byte*>(ids.data()),
            reinterpret_cast<const std::byte*>(homes.data()), reinterpret_cast<const std::byte*>(vectors.data())};
  }
};

// An index, that is a table and FAISS's lists, and plain lists of rows with the expected contents.
struct Index {
  Shape shape;
  StoredLists lists;
  Table table;
  std::vector<std::vector<Row>> expected;
  std::mt19937 generator{5};
  std::int64_t next_id = 0;

  explicit Index(const Shape& own)
      : shape(own),
        lists(own.nlist),
        table(std::vector<std::int64_t>(own.nlist, 0), own.further, own.d, kCodeSize),
        expected(own.nlist) {
    table.locate(table.places_in(lists));
  }

  std::size_t random(std::size_t below) { return static_cast<std::size_t>(generator()) % below; }
  // Ids from both ends.
  std::int64_t new_id() { return ++next_id % 3 == 0 ? kGreatestId - next_id : next_id; }
  std::int32_t new_label() { return static_cast<std::int32_t>(random(4)) - 1; }
  NewSample new_rows(std::size_t number) {
    std::vector<Row> rows;
    std::vector<std::int32_t> to;
    for (std::size_t r = 0; r < number; ++r) {
      rows.push_back({new_id(), new_label()});
      to.push_back(static_cast<std::int32_t>(random(std::max<std::size_t>(shape.nlist / 2, 1))));  // others stay empty
    }
    return {shape, rows, to};
  }

  // Like the extension: steps that may fail come first, and the others do not allocate.
  void commit(Change& change, const NewRows& fresh) {
    table.make_room(change, 2);
    table.forget_places();
    for (const ListChange& one : change.lists)
      if (one.after > one.before) lists.resize(one.list, one.after);
    table.locate(lists, change);
    {
      const tests::AllocationLimit none(0);
      table.apply(change, fresh);
    }
    for (const ListChange& one : change.lists)
      if (one.after < one.before) lists.resize(one.list, one.after);
  }

  void expect_insertion(const NewSample& fresh) {
    for (std::size_t r = 0; r < fresh.rows.size(); ++r) {
      auto& own = expected[static_cast<std::size_t>(fresh.lists[r])];
      own.insert(std::upper_bound(own.begin(), own.end(), fresh.rows[r],
                                  [](const Row& a, const Row& b) { return a.label < b.label; }),
                 fresh.rows[r]);
    }
  }
  void expect_removal(const std::vector<std::uint8_t>& removed) {
    std::size_t row = 0;
    for (auto& own : expected) {
      std::vector<Row> kept;
      for (const Row& one : own)
        if (removed[row++] == 0) kept.push_back(one);
      own = kept;
    }
  }
  void expect_labels(const std::vector<std::int32_t>& labels) {
    std::size_t row = 0;
    for (auto& own : expected) {
      for (Row& one : own) one.label = labels[row++];
      std::stable_sort(own.begin(), own.end(), [](const Row& a, const Row& b) { return a.label < b.label; });
    }
  }
  void expect_replacement(const std::vector<std::int64_t>& rows, const NewSample& fresh) {
    std::size_t size = 0;
    for (const auto& own : expected) size += own.size();
    std::vector<std::uint8_t> removed(size);
    for (const std::int64_t row : rows) removed[static_cast<std::size_t>(row)] = 1;
    expect_removal(removed);
    expect_insertion(fresh);
  }
  // Some rows in any order.
  std::vector<std::int64_t> shuffled_rows() {
    std::vector<std::int64_t> rows = numbers_of(some_rows());
    std::shuffle(rows.begin(), rows.end(), generator);
    return rows;
  }
  Row row_at(std::int64_t row) const {
    for (const auto& own : expected) {
      if (row < static_cast<std::int64_t>(own.size())) return own[static_cast<std::size_t>(row)];
      row -= static_cast<std::int64_t>(own.size());
    }
    throw std::out_of_range("there is no such row");
  }
  // New rows of which each second one has the id of a removed row.
  NewSample rows_in_place_of(const std::vector<std::int64_t>& removed, std::size_t number) {
    NewSample fresh = new_rows(number);
    std::vector<Row> own = fresh.rows;
    for (std::size_t r = 0; r < std::min(number, removed.size()); r += 2) own[r].id = row_at(removed[r]).id;
    return {shape, own, fresh.lists};
  }
  std::vector<std::uint8_t> some_rows() {
    std::vector<std::uint8_t> chosen(table.size());
    for (auto& one : chosen) one = random(3) == 0;
    return chosen;
  }
  std::vector<std::int32_t> new_labels() {
    std::vector<std::int32_t> labels(table.size());
    for (auto& label : labels) label = new_label();
    return labels;
  }

  // The numbers of the marked rows.
  static std::vector<std::int64_t> numbers_of(const std::vector<std::uint8_t>& chosen) {
    std::vector<std::int64_t> rows;
    for (std::size_t row = 0; row < chosen.size(); ++row)
      if (chosen[row] != 0) rows.push_back(static_cast<std::int64_t>(row));
    return rows;
  }
  std::vector<std::int64_t> all_rows() const { return numbers_of(std::vector<std::uint8_t>(table.size(), 1)); }

  // As in an index: vectors in addition to product-quantizer codes, or codes of a byte for each component.
  Rows rows(bool sorted = true) {
    static const std::vector<float> levels(2 * kCodeSize);
    if (shape.d > 0) return table.rows({shape.d, Codec::kFlat, {}});
    return table.rows({kCodeSize, Codec::kSq8, levels}, sorted);
  }

  void check_rows() {
    const Rows seen = rows();
    std::size_t row = 0;
    for (std::size_t list = 0; list < shape.nlist; ++list) {
      CHECK(seen.starts()[list] == static_cast<std::int64_t>(row));
      CHECK(lists.size(list) == expected[list].size());
      const std::uint8_t* codes = shape.d > 0 ? seen.view().pq_codes[list] : seen.codes_of(list);
      for (std::size_t place = 0; place < expected[list].size(); ++place, ++row) {
        const auto [id, label] = expected[list][place];
        CHECK(seen.labels()[row] == label && seen.ids_of(list)[place] == id);
        CHECK(std::memcmp(codes + kCodeSize * place, code_of(id).data(), kCodeSize) == 0);
        for (std::size_t i = 0; i < shape.d; ++i)
          CHECK(reinterpret_cast<const float*>(seen.codes_of(list))[place * shape.d + i] == number_of(id, i));
      }
    }
    CHECK(table.size() == row && seen.size() == row);
    check_references();
  }
  // Each id leads to its row as often as it is asked for, and the ids of removed rows to none.
  void check_ids(const std::vector<std::int64_t>& removed) {
    std::vector<std::int64_t> ids(removed), rows(removed.size(), -1);
    std::int64_t row = 0, greatest = -1;
    for (const auto& own : expected)
      for (const Row& one : own) {
        ids.insert(ids.end(), {one.id, one.id});
        rows.insert(rows.end(), {row, row});
        greatest = std::max(greatest, one.id);
        ++row;
      }
    ids.push_back(-5);
    rows.push_back(-1);
    CHECK(table.rows_of(ids) == rows && table.greatest_id() == greatest);
    CHECK(table.first_stored(removed) == -1);
  }
  std::vector<std::int64_t> ids_of(const std::vector<std::int64_t>& rows) const {
    std::vector<std::int64_t> ids;
    ids.reserve(rows.size());
    for (const std::int64_t row : rows) ids.push_back(row_at(row).id);
    return ids;
  }
  void check_references() {
    const std::optional<References> seen = table.references();
    CHECK(seen.has_value() == (shape.further > 0));
    if (!seen.has_value()) return;
    std::vector<std::int64_t> ids;
    for (const auto& own : expected)
      for (const Row& one : own) ids.push_back(one.id);
    const References& references = *seen;
    CHECK(references.rows.size() == shape.further * ids.size());
    for (std::size_t i = 0; i < shape.further * shape.nlist; ++i)
      for (auto at = references.starts[i]; at < references.starts[i + 1]; ++at) {
        const auto row = static_cast<std::size_t>(references.rows[static_cast<std::size_t>(at)]);
        CHECK(at == references.starts[i] ||
              references.rows[static_cast<std::size_t>(at - 1)] < references.rows[static_cast<std::size_t>(at)]);
        CHECK(home_of(ids[row], i / shape.nlist, shape.nlist) == static_cast<std::int32_t>(i % shape.nlist));
      }
  }
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{1, 0, 0}, {6, 0, 0}, {6, 0, kD}, {5, 2, 0}, {4, 1, kD}};
  return all;
}

// Runs `act` with ever more memory until there is enough, and `check` after each time that there was not.
template <class Act, class CheckAll>
void until_memory_suffices(const Act& act, const CheckAll& check) {
  for (std::size_t allowed = 0;; ++allowed) {
    bool failed = false;
    try {
      const tests::AllocationLimit limit(allowed);
      act();
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    if (!failed) return;
    check();
  }
}

}  // namespace

TEST(changes_move_rows_as_plain_lists_do) {
  for (const Shape& shape : shapes()) {
    Index index(shape);
    index.check_rows();
    for (int round = 0; round < 12; ++round) {
      const NewSample fresh = index.new_rows(index.random(40));
      Change change = index.table.replacement({}, fresh.lists, fresh.labels, true);
      index.commit(change, fresh.fresh());
      index.expect_insertion(fresh);
      index.check_ids({});
      if (round % 2 == 0) index.check_rows();  // else nobody reads in between
      const auto labels = index.new_labels();
      change = index.table.relabelling(index.all_rows(), labels, true);
      index.commit(change, {});
      index.expect_labels(labels);
      if (round % 3 == 0) index.check_rows();
      const auto removed = round == 6 ? std::vector<std::uint8_t>(index.table.size(), 1) : index.some_rows();
      const auto removed_ids = index.ids_of(Index::numbers_of(removed));
      change = index.table.replacement(Index::numbers_of(removed), {}, {}, true);
      index.commit(change, {});
      index.expect_removal(removed);
      index.check_rows();
      index.check_ids(removed_ids);
    }
  }
}

TEST(replaced_rows_keep_their_ids_in_any_list) {
  for (const Shape& shape : shapes()) {
    Index index(shape);
    for (int round = 0; round < 20; ++round) {
      const auto removed = index.shuffled_rows();
      const std::size_t number = round % 3 == 0 ? removed.size() : index.random(40);
      const NewSample fresh = index.rows_in_place_of(removed, number);
      Change change = index.table.replacement(removed, fresh.lists, fresh.labels, true);
      index.commit(change, fresh.fresh());
      index.expect_replacement(removed, fresh);
      index.check_rows();
      index.check_ids({});
    }
  }
}

TEST(rows_of_an_only_list_may_keep_their_order) {
  Index index({1, 0, 0});
  auto& own = index.expected[0];
  for (const std::size_t number : {1, 0, 17, 3}) {
    const NewSample fresh = index.new_rows(number);
    Change change = index.table.replacement({}, fresh.lists, fresh.labels, false);
    index.commit(change, fresh.fresh());
    own.insert(own.end(), fresh.rows.begin(), fresh.rows.end());
    const auto labels = index.new_labels();
    change = index.table.relabelling(index.all_rows(), labels, false);
    index.commit(change, {});
    for (std::size_t row = 0; row < own.size(); ++row) own[row].label = labels[row];
    const auto replaced = index.shuffled_rows();
    const NewSample others = index.new_rows(replaced.size() / 2);
    change = index.table.replacement(replaced, others.lists, others.labels, false);
    index.commit(change, others.fresh());
    for (std::size_t r = 0; r < replaced.size(); ++r)
      own[static_cast<std::size_t>(replaced[r])] = r < others.rows.size() ? others.rows[r] : Row{-1, -1};
    std::erase(own, Row{-1, -1});
    const Rows seen = index.rows(false);
    CHECK(seen.size() == own.size() && seen.nlist() == 1);
    for (std::size_t row = 0; row < own.size(); ++row) {
      CHECK(seen.labels()[row] == own[row].label && seen.ids_of(0)[row] == own[row].id);
      CHECK(std::memcmp(seen.codes_of(0) + kCodeSize * row, code_of(own[row].id).data(), kCodeSize) == 0);
    }
  }
}

TEST(a_change_for_which_memory_runs_out_changes_nothing) {
  for (const Shape& shape : shapes()) {
    Index index(shape);
    const auto change_by = [&index](const auto& prepare, const NewRows& fresh) {
      Change change;
      until_memory_suffices([&] { change = prepare(); }, [&] { index.check_rows(); });
      until_memory_suffices([&] { index.table.make_room(change, 2); }, [&] { index.check_rows(); });
      index.commit(change, fresh);
    };
    for (const std::size_t number : {60, 7, 1}) {  // in new memory, then in what is there already
      const NewSample fresh = index.new_rows(number);
      change_by([&] { return index.table.replacement({}, fresh.lists, fresh.labels, true); }, fresh.fresh());
      index.expect_insertion(fresh);
      index.check_rows();
      const auto labels = index.new_labels();
      change_by([&] { return index.table.relabelling(index.all_rows(), labels, true); }, {});
      index.expect_labels(labels);
      const auto replaced = index.shuffled_rows();
      const NewSample others = index.rows_in_place_of(replaced, number);
      change_by([&] { return index.table.replacement(replaced, others.lists, others.labels, true); }, others.fresh());
      index.expect_replacement(replaced, others);
      index.check_rows();
      const auto removed = index.some_rows();
      change_by([&] { return index.table.replacement(Index::numbers_of(removed), {}, {}, true); }, {});
      index.expect_removal(removed);
      index.check_rows();
    }
  }
}

TEST(a_reader_for_whom_memory_runs_out_may_read_again) {
  for (const Shape& shape : shapes()) {
    Index index(shape);
    const NewSample fresh = index.new_rows(50);
    Change change = index.table.replacement({}, fresh.lists, fresh.labels, true);
    index.commit(change, fresh.fresh());
    index.expect_insertion(fresh);
    until_memory_suffices([&] { (void)index.rows(); }, [] {});
    until_memory_suffices([&] { (void)index.table.references(); }, [] {});
    index.check_rows();
    Shared vectors;
    until_memory_suffices([&] { vectors = index.table.vectors(); }, [] {});
    const std::vector<std::int64_t> unknown{kGreatestId, 0};
    std::ptrdiff_t found = 0;
    until_memory_suffices([&] { found = index.table.first_stored(unknown); }, [&] { index.check_rows(); });
    CHECK(found == -1);
    index.check_rows();
  }
}

TEST(stored_ids_are_found_among_few_and_many) {
  Index index({6, 0, 0});
  std::vector<std::int64_t> stored;
  for (int round = 0; round < 6; ++round) {
    const NewSample fresh = index.new_rows(30);
    CHECK(index.table.first_stored(fresh.ids) == -1);
    Change change = index.table.replacement({}, fresh.lists, fresh.labels, true);
    index.commit(change, fresh.fresh());
    stored.insert(stored.end(), fresh.ids.begin(), fresh.ids.end());
    const std::int64_t one = stored[index.random(stored.size())];
    const std::vector<std::int64_t> few{kGreatestId, 0, one, stored[0]};
    CHECK(index.table.first_stored(few) == 2);
    std::vector<std::int64_t> many(stored.size(), 0);
    many.back() = one;
    CHECK(index.table.first_stored(many) == static_cast<std::ptrdiff_t>(many.size()) - 1);
  }
  Change change = index.table.replacement(index.all_rows(), {}, {}, true);
  index.commit(change, {});
  CHECK(index.table.first_stored(stored) == -1);
}

TEST(lists_that_others_changed_are_noticed) {
  Index index({3, 0, 0});
  const NewSample fresh(index.shape, {{1, 0}, {2, 1}}, {0, 2});
  Change change = index.table.replacement({}, fresh.lists, fresh.labels, true);
  CHECK(index.table.is_as_left(index.lists, &change));
  index.commit(change, fresh.fresh());
  CHECK(index.table.is_as_left(index.lists, nullptr));
  index.lists.resize(2, 5);
  CHECK(!index.table.is_as_left(index.lists, nullptr));
  CHECK_THROWS(std::domain_error, "not those of the table", index.table.places_in(index.lists));
}

TEST(what_a_reader_holds_stays_as_it_was) {
  Index index({4, 1, kD});
  const NewSample fresh = index.new_rows(40);
  Change change = index.table.replacement({}, fresh.lists, fresh.labels, true);
  index.commit(change, fresh.fresh());
  const Rows before = index.rows();
  const std::optional<References> kept = index.table.references();
  if (!kept.has_value()) throw std::runtime_error("there are no references");
  const References& references = *kept;
  const Shared vectors = index.table.vectors();
  const std::vector<std::int32_t> labels(before.labels().begin(), before.labels().end());
  const std::vector<std::int32_t> numbers(references.rows.begin(), references.rows.end());
  const std::vector<std::byte> bytes(vectors.get(), vectors.get() + sizeof(float) * kD * 40);
  for (int round = 0; round < 3; ++round) {
    change = index.table.relabelling(index.all_rows(), index.new_labels(), true);
    index.commit(change, {});
    change = index.table.replacement(Index::numbers_of(index.some_rows()), {}, {}, true);
    index.commit(change, {});
    (void)index.rows();
  }
  CHECK(std::equal(labels.begin(), labels.end(), before.labels().begin()));
  CHECK(std::equal(numbers.begin(), numbers.end(), references.rows.begin()));
  CHECK(std::equal(bytes.begin(), bytes.end(), vectors.get()));
}

TEST(readers_read_whole_tables_while_a_writer_changes_them) {
  Index index({5, 1, kD});
  ReadWriteLock lock;
  std::atomic<bool> done{false};
  std::atomic<int> torn{0}, reads{0};
  const auto read = [&] {
    while (!done || reads < 20) {
      lock.read([] {});
      try {
        index.check_rows();  // several derive the same at once
        const Shared vectors = index.table.vectors();
        if (vectors == nullptr && index.table.size() > 0) ++torn;
      } catch (const std::runtime_error&) {
        ++torn;
      }
      ++reads;
      lock.leave_reading();
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> readers;
  readers.reserve(3);
  for (int reader = 0; reader < 3; ++reader) readers.emplace_back(read);
  for (int round = 0; round < 30; ++round) {
    lock.write([] {});
    const NewSample fresh = index.new_rows(20);
    Change change = index.table.replacement({}, fresh.lists, fresh.labels, true);
    index.commit(change, fresh.fresh());
    index.expect_insertion(fresh);
    const auto removed = index.some_rows();
    change = index.table.replacement(Index::numbers_of(removed), {}, {}, true);
    index.commit(change, {});
    index.expect_removal(removed);
    lock.leave_writing();
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(torn == 0 && reads >= 20);
}

}  // namespace cfe
