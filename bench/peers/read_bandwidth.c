// How fast can N threads read memory? Each thread sums its own part of a buffer far larger than the caches, several times over; the best
// pass counts. Prints bytes per second. Built by speed.py with the system's C compiler; no part of Sterling.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kPasses = 8, kMaxThreads = 1024 };

struct part {
  const uint64_t* words;
  size_t count;
  uint64_t sum;
};

static void* read_part(void* argument) {
  struct part* part = argument;
  uint64_t a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
  for (size_t i = 0; i + 8 <= part->count; i += 8) {
    const uint64_t* w = part->words + i;
    a += w[0], b += w[1], c += w[2], d += w[3], e += w[4], f += w[5], g += w[6], h += w[7];
  }
  part->sum = a + b + c + d + e + f + g + h;
  return NULL;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  const size_t bytes = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1024) << 20;
  if (threads < 1 || threads > kMaxThreads || bytes == 0) return 2;
  uint64_t* buffer = malloc(bytes);
  if (buffer == NULL) return 1;
  memset(buffer, 1, bytes);
  static struct part parts[kMaxThreads];
  static pthread_t ids[kMaxThreads];
  const size_t each = bytes / sizeof(uint64_t) / (size_t)threads;
  double best = 1e30;
  uint64_t sum = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double start = now();
    for (int i = 0; i < threads; ++i) {
      parts[i] = (struct part){buffer + (size_t)i * each, each, 0};
      if (pthread_create(&ids[i], NULL, read_part, &parts[i]) != 0) return 1;
    }
    for (int i = 0; i < threads; ++i) {
      pthread_join(ids[i], NULL);
      sum += parts[i].sum;
    }
    const double seconds = now() - start;
    if (seconds < best) best = seconds;
  }
  fprintf(stderr, "%llu\n", (unsigned long long)sum);  // keeps the loops from being dropped
  printf("%.0f\n", (double)(each * (size_t)threads * sizeof(uint64_t)) / best);
  free(buffer);
  return 0;
}
