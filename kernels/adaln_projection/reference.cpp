// The CPU reference of the AdaLN projection: the bits that the GPU must give.  The arithmetic is in CONTRACT.md.
// Compile with -ffp-contract=off and without any fast-math option.
#include "reference.h"
#include "reference_exact.h"

#include <algorithm>
#include <cfenv>
#include <exception>
#include <thread>

namespace adaln {

namespace baseline {
#define ADALN_LANES 4
#include "reference_kernels.h"
#undef ADALN_LANES
}  // namespace baseline

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ADALN_DISPATCH 1

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
#define ADALN_LANES 8
#include "reference_kernels.h"
#undef ADALN_LANES
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")
namespace avx512 {
#define ADALN_LANES 16
#include "reference_kernels.h"
#undef ADALN_LANES
}  // namespace avx512
#pragma GCC pop_options
#endif

namespace {

// The forward without its shortcut: every sum in integers.
template <int kArch>
void exact_forward(const Forward &f, int64_t begin, int64_t end) {
    for (int64_t t = 0; t < f.T; ++t)
        for (int64_t n = begin; n < end; ++n)
            f.table[t * f.N + n] = round_to_bf16(exact_row_sum(f, t, n, kArch) + widen(f.bias[n]));
}

constexpr Kernels integers = {1, exact_forward<80>, exact_forward<90>, baseline::d_act, baseline::d_weight};

enum Isa { kBest = 0, kBaseline = 1, kAvx2 = 2, kAvx512 = 3, kIntegers = 4 };

// The kernels of an instruction set, or null where this processor has it not.
const Kernels *kernels_of(int isa) {
#ifdef ADALN_DISPATCH
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (isa == kBest) isa = has_avx512 ? kAvx512 : has_avx2 ? kAvx2 : kBaseline;
    if (isa == kAvx512) return has_avx512 ? &avx512::kernels : nullptr;
    if (isa == kAvx2) return has_avx2 ? &avx2::kernels : nullptr;
#endif
    if (isa == kIntegers) return &integers;
    return isa == kBest || isa == kBaseline ? &baseline::kernels : nullptr;
}

// Round to nearest, subnormals kept, whatever the caller's thread has been set to.
class DefaultFloatEnvironment {
  public:
    DefaultFloatEnvironment() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
    DefaultFloatEnvironment(const DefaultFloatEnvironment &) = delete;
    DefaultFloatEnvironment &operator=(const DefaultFloatEnvironment &) = delete;

  private:
    std::fenv_t saved_;
};

// body(begin, end) over [0, count), cut at multiples of `step`, on at most `threads` threads.
template <class Body>
void parallel(int64_t count, int64_t step, int threads, Body body) {
    const int64_t steps = (count + step - 1) / step, workers = std::clamp<int64_t>(threads, 1, steps);
    std::vector<std::exception_ptr> failed(workers);
    const auto work = [&](int64_t worker) {
        const DefaultFloatEnvironment environment;
        const int64_t begin = steps * worker / workers * step, end = steps * (worker + 1) / workers * step;
        try {
            body(begin, std::min(end, count));
        } catch (...) {
            failed[worker] = std::current_exception();
        }
    };
    std::vector<std::thread> pool;
    int64_t started = 1;
    try {
        for (; started < workers; ++started) pool.emplace_back(work, started);
    } catch (const std::exception &) {
        // The system gives no more threads: this one does their share below.
    }
    work(0);
    for (int64_t worker = started; worker < workers; ++worker) work(worker);
    for (std::thread &thread : pool) thread.join();
    for (const std::exception_ptr &error : failed)
        if (error) std::rethrow_exception(error);
}

void pack_act(Forward &f) {
    f.act_value.resize(group_count(f.K) * f.T * kGroup);
    f.act_exponent.resize(f.act_value.size());
    size_t at = 0;
    for (int64_t group = 0; group < group_count(f.K); ++group)
        for (int64_t t = 0; t < f.T; ++t)
            for (int j = 0; j < kGroup; ++j, ++at) {
                const int64_t k = slot_k(group, j);
                f.act_value[at] = k < f.K ? widen(f.act[t * f.K + k]) : 0.0f;
                f.act_exponent[at] = exponent_of(f.act_value[at]);
            }
}

enum Status { kOk = 0, kBadArgument = 1, kNoSuchIsa = 2, kOutOfMemory = 3 };

template <class Body>
int guarded(Body body) {
    try {
        body();
        return kOk;
    } catch (const std::exception &) {
        return kOutOfMemory;
    }
}

bool valid(int64_t T, int64_t N, int64_t K) { return T >= 1 && N >= 1 && K >= 8 && K % 8 == 0; }

}  // namespace
}  // namespace adaln

// Contiguous row-major host tensors; bf16 as uint16_t.  `arch` is the tensor core to follow: 80, or 90 (also sm_100).
// `isa`: 0 the best this processor has, 1 baseline, 2 AVX2, 3 AVX-512, 4 every forward sum in integers (slow: it is
// what the others are checked against).  Neither it nor `threads` changes a bit.
// Returned: 0, 1 bad argument, 2 this processor lacks that instruction set, 3 out of memory.
extern "C" __attribute__((visibility("default"))) int adaln_cpu_forward(const uint16_t *act, const uint16_t *weight, const uint16_t *bias, uint16_t *table,
                                 int64_t T, int64_t N, int64_t K, int arch, int threads, int isa) {
    using namespace adaln;
    if (!valid(T, N, K) || (arch != 80 && arch != 90)) return kBadArgument;
    const Kernels *kernels = kernels_of(isa);
    if (!kernels) return kNoSuchIsa;
    return guarded([&] {
        Forward f{act, weight, bias, table, T, N, K, {}, {}};
        pack_act(f);
        const auto run = arch == 80 ? kernels->forward_sm80 : kernels->forward_sm90;
        parallel(N, kernels->lanes, threads, [&](int64_t begin, int64_t end) { run(f, begin, end); });
    });
}

// d_act is float32 [T, K]; d_weight and d_bias are bf16.  Where d_act is null it is not computed; where d_weight is
// null neither it nor d_bias is.
extern "C" __attribute__((visibility("default"))) int adaln_cpu_backward(const uint16_t *grad_table, const uint16_t *act, const uint16_t *weight,
                                  float *d_act, uint16_t *d_weight, uint16_t *d_bias, int64_t T, int64_t N, int64_t K,
                                  int threads, int isa) {
    using namespace adaln;
    if (!valid(T, N, K) || (d_weight == nullptr) != (d_bias == nullptr)) return kBadArgument;
    const Kernels *kernels = kernels_of(isa);
    if (!kernels) return kNoSuchIsa;
    return guarded([&] {
        if (d_act) {
            const DAct problem{grad_table, weight, d_act, T, N, K};
            parallel(K, 2 * kernels->lanes, threads,
                     [&](int64_t begin, int64_t end) { kernels->d_act(problem, begin, end); });
        }
        if (d_weight) {
            const DWeight problem{grad_table, act, d_weight, d_bias, T, N, K};
            parallel(N, 1, threads, [&](int64_t begin, int64_t end) { kernels->d_weight(problem, begin, end); });
        }
    });
}
