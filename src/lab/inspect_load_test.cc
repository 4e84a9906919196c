// `loadable` must agree with what loading does, on every checkpoint there is: the golden sets, the project's own and those beside it, and the deliberately broken ones.
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "kernels/dispatch.h"
#include "lab/inspect.h"
#include "model/model.h"
#include "platform/thread_pool.h"

namespace sterling::lab {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> checkpoints() {
  std::vector<fs::path> found;
  const fs::path root = STERLING_SOURCE_DIR;
  for (const fs::path& sets : {root / "tests/golden", root / "../shared/golden/data"}) {
    if (!fs::exists(sets)) continue;
    for (const auto& entry : fs::directory_iterator(sets)) {
      if (fs::exists(entry.path() / "checkpoint")) found.push_back(entry.path() / "checkpoint");
    }
  }
  const fs::path broken = root / "../shared/golden/data/broken";
  if (fs::exists(broken)) {
    for (const auto& entry : fs::directory_iterator(broken)) {
      if (entry.is_directory()) found.push_back(entry.path());
    }
  }
  return found;
}

TEST(InspectAndLoad, Agree) {
  // Faults of content: a NaN among weights is seen when they are packed.
  const std::set<std::string> content{"nan_weight"};
  platform::ThreadPool::Options options;
  options.threads = 1;
  auto pool = platform::ThreadPool::create(options);
  ASSERT_TRUE(pool.ok());
  const auto kernels = kernels::select("scalar");
  ASSERT_TRUE(kernels.ok());
  std::size_t loaded = 0;
  for (const fs::path& path : checkpoints()) {
    SCOPED_TRACE(path.string());
    auto checkpoint = formats::Checkpoint::open(path);
    if (!checkpoint) {
      EXPECT_FALSE(inspect(path).ok());
      continue;
    }
    const Inspection inspection = inspect(*checkpoint);
    const auto backend = backend::make_cpu_backend({backend::Compute::kBf16, *kernels, pool->get()});
    const auto model = model::Model::load(*checkpoint, *backend, {});
    if (content.contains(path.filename().string())) {
      EXPECT_FALSE(model.ok());
      continue;
    }
    EXPECT_EQ(inspection.loadable, model.ok())
        << inspection.load_error.value_or("loadable") << " / " << (model.ok() ? "loaded" : model.error().message);
    EXPECT_EQ(inspection.loadable, !inspection.load_error.has_value());
    loaded += model.ok() ? 1 : 0;
  }
  EXPECT_GE(loaded, 15U);
}

}  // namespace
}  // namespace sterling::lab
