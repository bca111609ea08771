#include "crash.hpp"

#include <signal.h>

#include <cstdio>

#include "cluster.hpp"
#include "report.hpp"

namespace emulator {
namespace {

constexpr std::size_t kSignalStackBytes = 64 * 1024;

/// Says on standard error which thread of which block runs on this OS thread, if any does.
/// @param address that it has used; nullptr if that does not matter
void name_thread(const char* what, const void* address) {
  const Block* block = Block::current();
  if (!block) return;
  std::fprintf(stderr, "emulator: %s in block %s, thread %s; kernel launched at %s\n", what,
               describe(block->index()).c_str(), describe(block->thread().index).c_str(),
               describe(block->launch().where).c_str());
  const Block* ended = address ? block->cluster().ended_block_at(address) : nullptr;
  if (!ended) return;
  std::fprintf(
      stderr,
      "  the address is in the shared memory of block %s, which has ended; the thread's last address in another "
      "block is from %s\n",
      describe(ended->index()).c_str(), describe(block->thread().peer_shared).c_str());
}

void on_signal(int signal, siginfo_t* info, void*) {
  const Block* block = Block::current();
  const bool overflow = signal != SIGABRT && block && block->cluster().stacks().overflowed(info->si_addr);
  name_thread(overflow            ? "stack overflow"
              : signal == SIGABRT ? "abort"
                                  : "crash",
              signal == SIGSEGV ? info->si_addr : nullptr);
  // Back in the faulting instruction, or in abort(), the signal comes again and ends the program.
  struct sigaction default_action = {};
  default_action.sa_handler = SIG_DFL;
  sigaction(signal, &default_action, nullptr);
}

}  // namespace

void watch_for_crashes() {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction present;
    sigaction(signal, nullptr, &present);
    if ((present.sa_flags & SA_SIGINFO) != 0 || present.sa_handler != SIG_DFL) continue;
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(signal, &action, nullptr);
  }
}

SignalStack::SignalStack() : memory_(std::make_unique<char[]>(kSignalStackBytes)) {
  stack_t stack = {};
  stack.ss_sp = memory_.get();
  stack.ss_size = kSignalStackBytes;
  sigaltstack(&stack, nullptr);
}

SignalStack::~SignalStack() {
  stack_t stack = {};
  stack.ss_flags = SS_DISABLE;
  sigaltstack(&stack, nullptr);
}

}  // namespace emulator

#ifdef EMULATOR_ASAN
// The sanitizers call these hooks when they find something, just before or after they print what.
extern "C" void __asan_on_error() {
  emulator::name_thread("AddressSanitizer's error is", __asan_get_report_address());
}
extern "C" void __ubsan_on_report() {
  emulator::name_thread("undefined behaviour is", nullptr);
}
#endif
