/// @file
/// `fft`: a product of spectra.
///
/// Idea: the Fourier transform turns a convolution into a product, frequency by frequency, and costs O(N log N). But
/// the product of spectra belongs to a circular convolution, which wraps around from the end to the start. So u and the
/// kernel are padded with zeros to N >= 2 L: then only zeros wrap around.
/// Grows out of: nothing
/// Improves on: the sum as it is written, the variant `direct`, takes L^2 operations per channel.
/// Unchanged: the result, up to rounding.
/// Equation: y = first L of FFT^-1( FFT(u, 0, ..., 0) . FFT(kernel, 0, ..., 0) ), of length N, a power of two
/// Shapes: u, y [B, L, D]; kernel [L]; fp32 in host memory; spectra of N / 2 + 1 frequencies, complex, in double. The
/// other half of a spectrum is the conjugate of this one, because u is real.
/// Thread mapping: OpenMP gives each thread one channel of a batch entry at a time.
/// Resources: 48 N bytes per thread with the tables of its transforms, and 32 N for the kernel and its spectrum.
/// Work: two transforms per channel, 5 N log2(N) operations together, and 3 N for the product.
/// Bytes: u, kernel and y once.
/// Bound by: the caches.
/// Weakness: y_0 waits for all of u, so it cannot be used where tokens come one at a time. A rounding error affects the
/// whole sequence, not one step: if y_t is much smaller than others, its relative error is large.
/// Sources: Cooley and Tukey, Mathematics of Computation 19, 1965; Eigen's unsupported module FFT (kissfft).

#include <algorithm>
#include <bit>
#include <complex>
#include <cstddef>
#include <unsupported/Eigen/FFT>
#include <vector>

#include "06_scan/convolution.hpp"
#include "common/parallel.hpp"

namespace tutorial::convolution {
namespace {

using Spectrum = std::vector<std::complex<double>>;

/// Transforms of one length, forwards and back. Each thread has its own object, because it keeps tables.
class Transform {
 public:
  Transform() { fft_.SetFlag(Eigen::FFT<double>::HalfSpectrum); }

  Spectrum forward(const std::vector<double>& sequence) {
    Spectrum spectrum;
    fft_.fwd(spectrum, sequence);
    return spectrum;
  }
  std::vector<double> back(const Spectrum& spectrum, std::size_t N) {
    std::vector<double> sequence;
    fft_.inv(sequence, spectrum, Eigen::Index(N));
    return sequence;
  }

 private:
  Eigen::FFT<double> fft_;
};

}  // namespace

void fft(const Arguments& a) {
  const auto N = std::size_t(padded_length(a.L));
  std::vector<double> kernel(N);
  for (int t = 0; t < a.L; ++t) kernel[std::size_t(t)] = double(a.kernel[t]);
  const Spectrum of_kernel = Transform().forward(kernel);
#pragma omp parallel num_threads(fft_threads(a))
  {
    Transform transform;
    std::vector<double> sequence(N);
#pragma omp for collapse(2)
    for (int b = 0; b < a.B; ++b) {
      for (int d = 0; d < a.D; ++d) {
        for (int t = 0; t < a.L; ++t) sequence[std::size_t(t)] = double(a.u.row(b, 0, t)[d]);
        Spectrum spectrum = transform.forward(sequence);
        for (std::size_t f = 0; f < spectrum.size(); ++f) spectrum[f] *= of_kernel[f];
        const std::vector<double> y = transform.back(spectrum, N);
        for (int t = 0; t < a.L; ++t) a.y.row(b, 0, t)[d] = float(y[std::size_t(t)]);
      }
    }
  }
}

int fft_threads(const Arguments& a) {
  return int(std::min<std::int64_t>(processor_count(), std::int64_t(a.B) * a.D));
}

std::int64_t padded_length(std::int64_t L) {
  return std::int64_t(std::bit_ceil(2 * std::uint64_t(L)));
}

}  // namespace tutorial::convolution
