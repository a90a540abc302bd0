/* SPDX-License-Identifier: GPL-2.0 */
/* The provider's own part of the requests of a process. */
#ifndef VRDMA_UDATA_H
#define VRDMA_UDATA_H

#include <rdma/ib_verbs.h>

/*
 * Reads the provider's part of a request.
 *
 * Bytes that an older provider does not send are zero. Additional bytes of a newer provider must be
 * zero; otherwise the result is -EOPNOTSUPP.
 */
static inline int vrdma_udata_read(struct ib_udata *udata, void *req, size_t size)
{
	int err;

	memset(req, 0, size);
	err = ib_copy_from_udata(req, udata, min(size, udata->inlen));
	if (err)
		return err;
	if (udata->inlen > size && !ib_is_udata_cleared(udata, size, udata->inlen - size))
		return -EOPNOTSUPP;
	return 0;
}

#endif /* VRDMA_UDATA_H */
