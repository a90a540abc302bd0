// SPDX-License-Identifier: GPL-2.0
/*
 * Reading replies of any version of the device.
 *
 * A test runs this file on the host (tests/tests/end_to_end/versions.rs). So it uses nothing except
 * byte orders, error numbers and strings.
 */
#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/string.h>
#include <linux/types.h>

#include "reply.h"

/**
 * vrdma_reply_read() - read a reply that may be shorter or longer than the driver's structure
 * @resp: where the reply goes, or NULL if @size is 0
 * @size: size of @resp
 * @least: number of bytes that every device writes
 * @from: the reply
 * @len: number of bytes that the device wrote
 *
 * Bytes that an older device did not write are zero.
 *
 * Return: whether the reply is long enough
 */
bool vrdma_reply_read(void *resp, size_t size, size_t least, const void *from, size_t len)
{
	if (len < least)
		return false;
	if (!size)
		return true;
	len = min(len, size);
	memset(resp, 0, size);
	memcpy(resp, from, len);
	return true;
}

/* Reads the reply of QUERY_DEVICE. */
void vrdma_caps_read(struct vrdma_caps *caps, const struct vrdma_query_device_ex_resp *resp)
{
	const struct vrdma_query_device_resp *base = &resp->base;

	caps->device_cap = le64_to_cpu(resp->device_cap);
	/* A device of version 1.0 does not report its functions. */
	if (!caps->device_cap)
		caps->device_cap = VRDMA_CAP_V1_0;
	caps->device_cap &= VRDMA_DRIVER_CAPS;
	caps->fw_version = le64_to_cpu(base->fw_version);
	memcpy(&caps->sys_image_guid, base->sys_image_guid, sizeof(caps->sys_image_guid));
	caps->max_mr_size = le64_to_cpu(base->max_mr_size);
	caps->max_mr_runs = le32_to_cpu(base->max_mr_runs);
	caps->max_pd = le32_to_cpu(base->max_pd);
	caps->max_cq = le32_to_cpu(base->max_cq);
	caps->max_cqe = le32_to_cpu(base->max_cqe);
	caps->max_mr = le32_to_cpu(base->max_mr);
	caps->max_qp = le32_to_cpu(base->max_qp);
	caps->max_qp_wr = le32_to_cpu(base->max_qp_wr);
	caps->max_send_sge = le32_to_cpu(base->max_send_sge);
	caps->max_recv_sge = le32_to_cpu(base->max_recv_sge);
	caps->max_inline = le32_to_cpu(base->max_inline);
	caps->max_rd_atomic = le32_to_cpu(base->max_rd_atomic);
	caps->max_dest_rd_atomic = le32_to_cpu(base->max_dest_rd_atomic);
	caps->max_ah = le32_to_cpu(base->max_ah);
	caps->atomic_cap = le32_to_cpu(base->atomic_cap);
	caps->max_srq = caps->device_cap & VRDMA_CAP_SRQ ? le32_to_cpu(resp->max_srq) : 0;
	if (caps->device_cap & VRDMA_CAP_MULTICAST) {
		caps->max_mcast_grp = le32_to_cpu(resp->max_mcast_grp);
		caps->max_mcast_qp_attach = le32_to_cpu(resp->max_mcast_qp_attach);
		caps->max_total_mcast_qp_attach = le32_to_cpu(resp->max_total_mcast_qp_attach);
	}
	if (caps->device_cap & VRDMA_CAP_MEM_MGT_EXTENSIONS)
		caps->max_fast_reg_pages = le32_to_cpu(resp->max_fast_reg_pages);
}

/* Returns the error number that the user of a verb gets. */
int vrdma_status_to_errno(u32 status)
{
	switch (status) {
	case VRDMA_STATUS_OK:
		return 0;
	case VRDMA_STATUS_UNSUPPORTED:
		return -EOPNOTSUPP;
	case VRDMA_STATUS_INVALID:
		return -EINVAL;
	case VRDMA_STATUS_NOT_FOUND:
		return -ENOENT;
	case VRDMA_STATUS_BUSY:
		return -EBUSY;
	case VRDMA_STATUS_DENIED:
		return -EPERM;
	case VRDMA_STATUS_NO_RESOURCES:
	case VRDMA_STATUS_TOO_LARGE:
		return -ENOMEM;
	case VRDMA_STATUS_FAULT:
		return -EFAULT;
	default:
		return -EIO;
	}
}
