// Talking to the hub: who gets the token, which redirects are followed, what is tried again, and what a failure means to the user.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "hub/http.h"
#include "hub/listing.h"
#include "hub/names.h"
#include "hub/retry.h"
#include "hub/url.h"

namespace sterling::hub {

struct ClientOptions {
  std::string endpoint;
  std::string token;  // may be empty; stands in no message
  HttpOptions http;   // its `stopped` is asked from every thread that uses the client
  RetryPolicy retry;
  std::uint64_t seed = 0;  // of the waits between attempts
  LogSink log;
};

struct FileFacts {
  std::string blob;  // its name in blobs/
  std::optional<std::int64_t> size;
};

// Shared by all workers: thread-safe. The session that a call runs on belongs to the calling thread.
class Client {
 public:
  Client(ClientOptions options, RepoId repo);

  // The commit that a revision is now, and its files: with sizes and hashes where the hub has the tree, names alone otherwise.
  Expected<RevisionInfo> list(HttpSession& session, const std::string& revision);

  // HEAD: what the file's blob will be called, and its size.
  Expected<FileFacts> head(HttpSession& session, const std::string& commit, const ListedFile& file);

  // Where the bytes of a file are asked for.
  std::string file_url(const std::string& commit, const std::string& path) const;

  // One request, following redirects (the token goes to the hub's own scheme, host and port alone, and never from https to http).
  // `final_url` becomes the URL that answered. A redirect for which `enough` holds ends the walk. Not retried.
  HttpOutcome send(HttpSession& session, HttpCall call, std::string* final_url = nullptr,
                   const std::function<bool(const HttpReply&)>& enough = {});

  // What to do after an outcome that is no success: the error to give up with, or nothing after having waited for the next attempt.
  std::optional<Error> wait_or_give_up(const HttpOutcome& outcome, std::string_view body, const std::string& what,
                                       Retries& retries);

  // The error behind a status that is no success. `body` is the beginning of the reply's body.
  Error explain(const HttpReply& reply, std::string_view body, const std::string& what) const;

  Retries retries();
  const LogSink& log() const { return options_.log; }
  bool stopped() const { return stop_ || (options_.http.stopped && options_.http.stopped()); }
  // Ends whatever runs through this client, for good.
  void stop() { stop_ = true; }
  // For sessions; they end with the client.
  HttpOptions http_options() const;
  // Sleeps in short pieces; false when stopped.
  bool wait(std::chrono::milliseconds time) const;

 private:
  Expected<std::string> get(HttpSession& session, const std::string& url, const std::string& what, HttpReply* reply);
  Expected<FileFacts> facts_of(const HttpReply& named, const HttpReply& last, const ListedFile& file,
                               const std::string& what) const;
  std::string redacted(std::string text) const;

  ClientOptions options_;
  RepoId repo_;
  std::optional<Origin> home_;
  Gate gate_;
  std::atomic<std::uint64_t> next_seed_;
  std::atomic<bool> stop_ = false;
};

// The code is `kCancelled` when the user stopped it.
Error stopped_error();

}  // namespace sterling::hub
