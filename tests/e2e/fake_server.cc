// The real server over a scripted engine, for trying clients without a model. Prints its address, serves until stdin ends.
#include <cstdio>
#include <iostream>
#include <string>

#include "server/server.h"
#include "serving/testing/byte_model.h"
#include "serving/testing/fake_engine.h"

int main() {
  using namespace sterling;
  static const std::string kText =
      "The capital of France is Paris. Grüße, 漢字 and 👋 follow, one two three four five six seven eight nine ten.\n";
  serving::testing::FakeEngine engine(
      {.script =
           [](const engine::TokenRequest& request, std::size_t at) {
             // Sampled answers differ by seed and choice, as a model's would.
             const bool greedy = request.sampling.temperature == 0.0F;
             const std::size_t shift = greedy ? 0 : (request.sampling.seed + 31 * request.sampling.stream) % 7;
             return serving::testing::scripted(kText.substr(shift), at);
           },
       .step = std::chrono::microseconds(2000)});
  serving::Service service(engine, serving::testing::byte_model_options());
  server::ServerOptions options;
  options.port = 0;
  options.version = "fake";
  auto server = server::Server::start(service, options);
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 1;
  }
  (*server)->set_ready(true);
  std::printf("ready address=http://%s model=byte-model\n", (*server)->address().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
  }
  (*server)->stop(std::chrono::milliseconds(1000));
  return 0;
}
