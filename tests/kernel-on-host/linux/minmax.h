/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#define min(a, b) ((a) < (b) ? (a) : (b))
