/* SPDX-License-Identifier: GPL-2.0 */
#ifndef VRDMA_GSI_H
#define VRDMA_GSI_H

#include "vrdma.h"

bool vrdma_probe_gsi(struct vrdma_dev *dev);

#endif /* VRDMA_GSI_H */
