// The public slot limiter, and how the pool sizes its claims by it.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <variant>
#include <vector>

#include "client/cpp/src/auto_prefetch.h"
#include "client/cpp/src/claim_size.h"
#include "tenure/limiter.h"

namespace tenure::client {
namespace {

using Answer = std::variant<SlotPermit, NotAdmitted>;

bool Admitted(const Answer& answer) { return std::holds_alternative<SlotPermit>(answer); }
NotAdmitted Why(const Answer& answer) { return std::get<NotAdmitted>(answer); }

TEST(SlotLimiter, AdmitsUpToItsSlotsAndAgainAfterARelease) {
  const auto limiter = SlotLimiter::Make({.slots = 2});
  Answer first = limiter->TryAcquire(0, "");
  Answer second = limiter->TryAcquire(0, "");
  ASSERT_TRUE(Admitted(first) && Admitted(second));
  EXPECT_EQ(Why(limiter->TryAcquire(100, "")), NotAdmitted::kNoSlot);
  EXPECT_EQ(limiter->in_use(), 2);
  std::get<SlotPermit>(first).Release();
  std::get<SlotPermit>(first).Release();  // Once is enough.
  EXPECT_EQ(limiter->in_use(), 1);
  EXPECT_TRUE(Admitted(limiter->TryAcquire(0, "")));
}

TEST(SlotLimiter, APermitFollowsItsOwner) {
  const auto limiter = SlotLimiter::Make({.slots = 1});
  {
    SlotPermit kept = std::get<SlotPermit>(limiter->TryAcquire(0, ""));
    SlotPermit moved = std::move(kept);
    EXPECT_FALSE(kept.held());
    EXPECT_TRUE(moved.held());
    EXPECT_EQ(limiter->in_use(), 1);
  }
  EXPECT_EQ(limiter->in_use(), 0);
}

TEST(SlotLimiter, KeepsReservedSlotsForHighPriorities) {
  // Of 4 slots one is kept for 50 and above, and one more for 10 and above.
  const auto limiter = SlotLimiter::Make({.slots = 4, .reservations = {{50, 1}, {10, 1}}});
  EXPECT_EQ(limiter->Free(0), 2);
  EXPECT_EQ(limiter->Free(10), 3);
  EXPECT_EQ(limiter->Free(50), 4);
  std::vector<Answer> held;
  held.push_back(limiter->TryAcquire(0, ""));
  held.push_back(limiter->TryAcquire(9, ""));
  EXPECT_EQ(Why(limiter->TryAcquire(9, "")), NotAdmitted::kReserved);
  held.push_back(limiter->TryAcquire(49, ""));
  EXPECT_EQ(Why(limiter->TryAcquire(49, "")), NotAdmitted::kReserved);
  held.push_back(limiter->TryAcquire(50, ""));
  EXPECT_EQ(Why(limiter->TryAcquire(100, "")), NotAdmitted::kNoSlot);
  for (const Answer& answer : held) EXPECT_TRUE(Admitted(answer));
  EXPECT_EQ(limiter->InUseBelow(10), 2);
  EXPECT_EQ(limiter->InUseBelow(50), 3);
}

TEST(SlotLimiter, ReservedSlotsDoNotCountUrgentJobsTwice) {
  // Urgent jobs may use the common slots too; the reserved one then stays for the next urgent job.
  const auto limiter = SlotLimiter::Make({.slots = 3, .reservations = {{10, 1}}});
  Answer urgent = limiter->TryAcquire(10, "");
  Answer low = limiter->TryAcquire(0, "");
  Answer second = limiter->TryAcquire(0, "");
  EXPECT_TRUE(Admitted(urgent) && Admitted(low) && Admitted(second));
  EXPECT_EQ(Why(limiter->TryAcquire(10, "")), NotAdmitted::kNoSlot);
}

TEST(SlotLimiter, BoundsATenant) {
  const auto limiter = SlotLimiter::Make({.slots = 10, .reservations = {}, .slots_per_tenant = 2});
  std::vector<Answer> held;
  held.push_back(limiter->TryAcquire(0, "a"));
  held.push_back(limiter->TryAcquire(0, "a"));
  EXPECT_EQ(Why(limiter->TryAcquire(0, "a")), NotAdmitted::kTenant);
  EXPECT_TRUE(Admitted(limiter->TryAcquire(0, "b")));
  // A job without a tenant is nobody's.
  for (int i = 0; i < 4; ++i) held.push_back(limiter->TryAcquire(0, ""));
  held.erase(held.begin());
  EXPECT_TRUE(Admitted(limiter->TryAcquire(0, "a")));
}

TEST(SlotLimiter, TellsListenersUntilTheyUnsubscribe) {
  const auto limiter = SlotLimiter::Make({.slots = 1});
  int told = 0;
  auto subscription = limiter->OnRelease([&] { ++told; });
  std::get<SlotPermit>(limiter->TryAcquire(0, "")).Release();
  EXPECT_EQ(told, 1);
  subscription.reset();
  std::get<SlotPermit>(limiter->TryAcquire(0, "")).Release();
  EXPECT_EQ(told, 1);
}

TEST(SlotLimiter, NeverExceedsItsBoundsUnderContention) {
  const auto limiter = SlotLimiter::Make({.slots = 3, .reservations = {{10, 1}}, .slots_per_tenant = 1});
  std::atomic<int> low{0}, all{0}, worst_low{0}, worst_all{0}, rounds{0};
  const auto note = [](std::atomic<int>& worst, int seen) {
    for (int before = worst; before < seen && !worst.compare_exchange_weak(before, seen);) {
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 5'000; ++i) {
          const int priority = t < 4 ? 0 : 10;
          Answer answer = limiter->TryAcquire(priority, t % 2 == 0 ? "even" : "");
          if (!Admitted(answer)) continue;
          ++rounds;
          note(worst_all, ++all);
          if (priority == 0) note(worst_low, ++low);
          if (priority == 0) --low;
          --all;
        }
      });
    }
  }
  EXPECT_GT(rounds, 0);
  EXPECT_LE(worst_all, 3);
  EXPECT_LE(worst_low, 2);
  EXPECT_EQ(limiter->in_use(), 0);
  EXPECT_EQ(limiter->InUseBelow(10), 0);
}

// --- Sizes of claims

internal::PoolLoad Load(int running, int waiting, int held_low = 0) {
  internal::PoolLoad load;
  load.running = running;
  load.waiting = waiting;
  load.held_below = [held_low](int) { return held_low; };
  return load;
}

TEST(AutoPrefetch, IsWhatTheSlotsWorkOffInAMoment) {
  internal::AutoPrefetch prefetch(8, std::chrono::seconds(30));
  EXPECT_EQ(prefetch.size(), 0) << "nothing is known yet";
  for (int i = 0; i < 100; ++i) prefetch.Ran(std::chrono::milliseconds(10));
  EXPECT_NEAR(prefetch.size(), 80, 8);
  for (int i = 0; i < 200; ++i) prefetch.Ran(std::chrono::microseconds(1));
  EXPECT_EQ(prefetch.size(), internal::AutoPrefetch::kMost);
  // One slow job is enough to hold back.
  prefetch.Ran(std::chrono::seconds(1));
  EXPECT_LE(prefetch.size(), 8);
  prefetch.Ran(std::chrono::seconds(1));
  EXPECT_EQ(prefetch.size(), 0);
}

TEST(AutoPrefetch, NeverHoldsMoreThanATenthOfTheLease) {
  internal::AutoPrefetch prefetch(10, std::chrono::milliseconds(500));
  for (int i = 0; i < 100; ++i) prefetch.Ran(std::chrono::milliseconds(5));
  EXPECT_NEAR(prefetch.size(), 10 * 50 / 5, 10);
}

TEST(AutoPrefetch, LongJobsAreNeverClaimedAhead) {
  internal::AutoPrefetch prefetch(100, std::chrono::hours(1));
  for (int i = 0; i < 10; ++i) prefetch.Ran(std::chrono::milliseconds(120));
  EXPECT_EQ(prefetch.size(), 0);
}

internal::ClaimSize Size(const SlotLimits& limits, int prefetch, const internal::PoolLoad& load) {
  return internal::SizeClaim(limits, limits.slots, prefetch, limits.slots - load.running, load);
}

TEST(ClaimSize, IsWhatIsFree) {
  EXPECT_EQ(Size({.slots = 10}, 0, Load(0, 0)).max_jobs, 10);
  EXPECT_EQ(Size({.slots = 10}, 0, Load(7, 1)).max_jobs, 2);
  EXPECT_EQ(Size({.slots = 10}, 0, Load(10, 0)).max_jobs, 0);
  EXPECT_EQ(Size({.slots = 5'000}, 0, Load(0, 0)).max_jobs, 1'000);
}

TEST(ClaimSize, PrefetchIsFilledUpHalfByHalf) {
  const SlotLimits limits{.slots = 4};
  EXPECT_EQ(Size(limits, 100, Load(4, 90)).max_jobs, 0);  // Too little room to be worth a call.
  EXPECT_EQ(Size(limits, 100, Load(4, 50)).max_jobs, 50);
  EXPECT_EQ(Size(limits, 100, Load(3, 0)).max_jobs, 101);  // A slot is idle.
}

TEST(ClaimSize, ASharedLimiterBoundsIt) {
  EXPECT_EQ(internal::SizeClaim({.slots = 10}, 10, 0, 3, Load(0, 0)).max_jobs, 3);
  EXPECT_EQ(internal::SizeClaim({.slots = 10}, 10, 0, 0, Load(0, 0)).max_jobs, 0);
}

TEST(ClaimSize, ReservationsLeaveRoomForWhatLowJobsHoldAlready) {
  const SlotLimits limits{.slots = 10, .reservations = {{10, 4}}};
  // Nothing held: of ten slots six may go to low jobs.
  auto size = Size(limits, 0, Load(0, 0, 0));
  ASSERT_EQ(size.reservations.size(), 1u);
  EXPECT_EQ(size.reservations[0].slots, 4);
  // Six low jobs run: all that is left is kept.
  size = Size(limits, 0, Load(6, 0, 6));
  EXPECT_EQ(size.max_jobs, 4);
  EXPECT_EQ(size.reservations[0].slots, 4);
  // Four urgent jobs run: the common slots are all for anybody.
  size = Size(limits, 0, Load(4, 0, 0));
  EXPECT_EQ(size.max_jobs, 6);
  EXPECT_TRUE(size.reservations.empty());
}

TEST(ClaimSize, SeveralReservationsAddUp) {
  const SlotLimits limits{.slots = 10, .reservations = {{50, 2}, {10, 3}}};
  const auto size = Size(limits, 0, Load(0, 0, 0));
  ASSERT_EQ(size.reservations.size(), 2u);
  EXPECT_EQ(size.reservations[0].min_priority, 50);
  EXPECT_EQ(size.reservations[0].slots, 2);
  EXPECT_EQ(size.reservations[1].min_priority, 10);
  EXPECT_EQ(size.reservations[1].slots, 3);
}

TEST(ClaimSize, AClaimThatKeepsOutWhatFitsNowIsOutgrown) {
  const SlotLimits limits{.slots = 10, .reservations = {{10, 4}}};
  const auto sent = Size(limits, 0, Load(6, 0, 6));
  EXPECT_FALSE(internal::OpensUp(sent, Size(limits, 0, Load(6, 0, 6))));
  EXPECT_TRUE(internal::OpensUp(sent, Size(limits, 0, Load(5, 0, 5))));
  EXPECT_FALSE(internal::OpensUp(Size(limits, 0, Load(0, 0, 0)), sent));
}

}  // namespace
}  // namespace tenure::client
