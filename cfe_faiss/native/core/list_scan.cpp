#include "core/list_scan.h"

#include "core/common.h"
#include "core/kernels.h"
#include "core/scan_memory.h"

namespace cfe {

namespace {

// Clears the results of each query, and calls scan(query, best) for those that may find a row.
template <class Scan>
void for_each_query(const ListQueries& queries, Matrix<float> D, Matrix<std::int64_t> I, const Scan& scan) {
  for (std::size_t q = 0; q < queries.X.rows; ++q) {
    const TopK best{D[q].data(), I[q].data(), D.columns};
    best.clear();
    if (queries.labels[q] != kUnknown || queries.filter.policy == Policy::kAny)
      scan(ListQuery{queries.X[q].data(), queries.labels[q], queries.lists[q], queries.filter.from(q)}, best);
  }
}

constexpr std::size_t kListsAtOnce = 64;
constexpr std::size_t kRoomPerRow = 2, kMoreRoom = 64;  // for rows that are near by their codes

}  // namespace

ListScan::ListScan(const Rows& rows, std::span<const std::int32_t> references,
                   std::span<const std::int64_t> reference_starts)
    : rows_(rows),
      view_{rows.view(), references.data(), reference_starts.data(),
            reference_starts.empty() ? 0 : reference_starts.size() - 1} {
  require(ascends(reference_starts, references.size()),
          "reference_starts must ascend and run from 0 to the number of references");
  view_.copies = rows.most_copies(references);
}

void ListScan::check(const ListQueries& queries, const Matrix<float>& D, const Matrix<std::int64_t>& I) const {
  const std::size_t nq = queries.X.rows;
  require(queries.X.columns == rows_.d(), "X must have d columns");
  require(queries.labels.size() == nq && queries.lists.rows == nq, "each query must have a label and a row of lists");
  require(D.rows == nq && I.rows == nq && D.columns == I.columns && D.columns > 0, "D and I must be (nq, k), k > 0");
  const auto stop = static_cast<std::int64_t>(size());
  const std::int64_t *first = queries.lists.data, *last = first + queries.lists.size();
  require(std::all_of(first, last, [stop](std::int64_t list) { return list < stop; }), "there is no such list");
  rows_.check_lists({first, last});
}

void ListScan::scan(const ListQuery& query, double margin, TopK best, ScanMemory& memory) const {
  rows_.check_lists(query.lists);
  kernels().scan_lists(view_, query, static_cast<float>(margin), memory.of(1, {rows_.d(), best.k, view_.copies}), best);
}

void ListScan::scan(const ListQueries& queries, double margin, Matrix<float> D, Matrix<std::int64_t> I) const {
  check(queries, D, I);
  ScanMemory memory;
  for_each_query(queries, D, I, [&](const ListQuery& query, TopK best) { scan(query, margin, best, memory); });
}

void ListScan::scan_codes(const ListQueries& queries, const PqView& pq, std::size_t kept, Matrix<float> D,
                          Matrix<std::int64_t> I) const {
  check(queries, D, I);
  require(rows_.codec() == Codec::kFlat && view_.rows.pq_codes != nullptr, "rows must be float32 with codes");
  require(pq.parts * pq.width == rows_.d() && kept > 0, "codewords must fit the rows, and kept be positive");
  const std::size_t room = padded(kRoomPerRow * kept * view_.copies + kMoreRoom);
  std::vector<float> table(pq.parts * kCodewords), to_centroids(rows_.nlist()), rest(rows_.d());
  std::vector<float> scores(room), best_scores(kept);
  std::vector<std::int64_t> ids(room), best_ids(kept), selection(memory_of_best(room));
  std::vector<const std::uint8_t*> codes(room);
  const PqMemory memory{table, to_centroids, rest,  scores,
                        ids,   selection,    codes, {best_scores.data(), best_ids.data(), kept}};
  for_each_query(queries, D, I,
                 [&](const ListQuery& query, TopK best) { kernels().scan_codes(view_, pq, query, memory, best); });
}

void write_centroids(const ListCentroids& of) {
  std::vector<float> row(of.lists.rows.d);
  std::vector<double> counts(of.labels.size() + 1), totals(counts.size() * of.mean.size());
  kernels().list_centroids(of, {row, counts, totals});
}

void ListScan::centroids(const CentroidEntries& of, int threads, const Watch& watch) const {
  const auto some = [&](std::size_t first, std::size_t stop) {
    for (std::size_t list = first; list < stop; ++list) {
      const std::int64_t number = static_cast<std::int64_t>(list);
      rows_.check_lists({&number, 1});
      const auto begin = static_cast<std::size_t>(of.starts[list]), end = static_cast<std::size_t>(of.starts[list + 1]);
      write_centroids({view_, list, of.labels.subspan(begin, end - begin), of.center, of.means[list],
                       of.class_means.part(begin, end), of.policy});
    }
  };
  parallel_runs(size(), kListsAtOnce, threads, some, watch);
}

}  // namespace cfe
